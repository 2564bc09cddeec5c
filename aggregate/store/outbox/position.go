package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	positionFile    = "position"
	positionTemp    = "position.new"
	maxPositionSize = 64 << 10
)

var errPosition = errors.New("checksum does not match")

// position is how far the log has come. Losing it only repeats records.
type position struct {
	ID      uint64                   `json:"id"`
	At      time.Time                `json:"at"` // for people
	Classes map[string]classPosition `json:"classes"`
}

type classPosition struct {
	Acked    uint64 `json:"acked"`    // up to here
	Appended uint64 `json:"appended"` // at least
}

// writePosition replaces the position: a JSON line and its CRC32C.
func writePosition(fsys FS, dir string, p *position) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode position: %w", err)
	}
	text = fmt.Appendf(text, "\n%08x\n", crc32.Checksum(text, castagnoli))
	temp := filepath.Join(dir, positionTemp)
	if err := writeFile(fsys, temp, text); err != nil {
		return fmt.Errorf("write position: %w", err)
	}
	if err := fsys.Rename(temp, filepath.Join(dir, positionFile)); err != nil {
		return fmt.Errorf("write position: %w", err)
	}
	return nil
}

func writeFile(fsys FS, name string, text []byte) error {
	f, err := fsys.Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}

// readPosition gives nil where there is none yet.
func readPosition(fsys FS, dir string) (*position, error) {
	f, err := fsys.Open(filepath.Join(dir, positionFile), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read position: %w", err)
	}
	defer f.Close()
	b := make([]byte, maxPositionSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read position: %w", err)
	}
	p, err := parsePosition(b[:n])
	if err != nil {
		return nil, fmt.Errorf("read position: %w", err)
	}
	return p, nil
}

func parsePosition(b []byte) (*position, error) {
	text, sum, ok := bytes.Cut(b, []byte("\n"))
	if !ok || string(sum) != fmt.Sprintf("%08x\n", crc32.Checksum(text, castagnoli)) {
		return nil, errPosition
	}
	p := new(position)
	if err := json.Unmarshal(text, p); err != nil {
		return nil, err
	}
	return p, nil
}

// save writes the position, for good. The caller holds files.
func (l *Log) save() error {
	l.mu.Lock()
	p := position{ID: l.id, At: l.o.Now(), Classes: make(map[string]classPosition, len(l.classes))}
	for i := range l.classes {
		c := &l.classes[i]
		p.Classes[c.Name] = classPosition{Acked: c.acked, Appended: c.appended}
	}
	l.changed = false
	l.mu.Unlock()
	l.saved = p.At
	if err := writePosition(l.o.FS, l.o.Dir, &p); err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return fmt.Errorf("write position: %w", err)
	}
	for i := range l.classes {
		c := &l.classes[i]
		c.saved = p.Classes[c.Name].Acked
	}
	return nil
}

// trySave writes the position where nothing but a repetition hangs on it.
func (l *Log) trySave() {
	if err := l.save(); err != nil {
		l.o.Logger.Warn("position cannot be written: records may be sent again", slog.String("error", err.Error()))
	}
}

// Save writes the position if it has changed, for when there is nothing to send.
func (l *Log) Save() {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	changed := l.changed
	l.mu.Unlock()
	if changed {
		l.trySave()
	}
}
