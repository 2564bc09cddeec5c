package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	positionName  = "position"
	positionTemp  = "position.new"
	positionMagic = "obp2"

	// slotSize is a page: damage to one leaves the other slot.
	slotSize  = 4096
	slotHead  = 4 + 4 + 3*8 + 1
	slotClass = 1 + 7*8
)

var (
	errPosition      = errors.New("checksum does not match")
	errOtherPosition = errors.New("another version of csigscope wrote it")
)

// position is the progress of the log.
type position struct {
	generation uint64
	id         uint64
	at         time.Time // for people
	classes    []classPosition
}

// classPosition is the progress of a class.
type classPosition struct {
	class     uint8  // its ID
	acked     uint64 // acknowledged up to here
	confirmed uint64 // the last durable record
	ackedSum  uint64 // weight of all up to acked
	sum       uint64 // weight of all up to confirmed
	extent    Extent // of all since the class was last empty
	doubt     uint64 // the number of an Uncertain loss that waits; 0 for none
}

// of returns the progress of a class, zero without a position.
func (p *position) of(c *class) classPosition {
	if p != nil {
		for _, at := range p.classes {
			if at.class == c.ID {
				return at
			}
		}
	}
	return classPosition{}
}

// positionFile is the open file. Of its two slots one is synced and stays unchanged until the
// other one is synced: so one is always valid, and the last append is in the other. Guarded by
// the log's files.
type positionFile struct {
	file       File // nil: the file is missing, or cannot be written
	synced     int  // slot
	generation uint64
}

// open reads the later of the two slots; nil if there is none. The error may come from either
// slot.
func (f *positionFile) open(fsys FS, dir string) (*position, error) {
	file, err := fsys.Open(filepath.Join(dir, positionName), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var latest *position
	b := make([]byte, slotSize)
	for slot := range 2 {
		n, failed := file.ReadAt(b, int64(slot)*slotSize)
		if failed != nil && !errors.Is(failed, io.EOF) {
			err = errors.Join(err, failed)
			continue
		}
		p, failed := parsePosition(b[:n])
		if failed != nil {
			err = errors.Join(err, failed)
		} else if latest == nil || p.generation > latest.generation {
			latest = p
			f.synced, f.generation = slot, p.generation
		}
	}
	if latest == nil {
		return nil, errors.Join(err, file.Close())
	}
	f.file = file
	return latest, err
}

func (f *positionFile) close() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.Close()
}

// create makes a new file with both slots, durable in the folder.
func (f *positionFile) create(fsys FS, dir string, p *position) error {
	if err := f.close(); err != nil {
		return err
	}
	temp := filepath.Join(dir, positionTemp)
	file, err := fsys.Open(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	f.file, f.synced = file, 1
	err = f.write(p)
	f.synced = 0
	if err == nil {
		err = f.write(p)
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = fsys.Rename(temp, filepath.Join(dir, positionName))
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

// write fills the slot that is not synced. After an error the file is not written to again.
func (f *positionFile) write(p *position) error {
	f.generation++
	p.generation = f.generation
	if _, err := f.file.WriteAt(p.append(nil), int64(1-f.synced)*slotSize); err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

// sync makes the written slot durable.
func (f *positionFile) sync() error {
	if err := f.file.Sync(); err != nil {
		return errors.Join(err, f.close())
	}
	f.synced = 1 - f.synced
	return nil
}

// append encodes a slot.
func (p *position) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, positionMagic...)
	b = append(b, 0, 0, 0, 0) // length
	for _, v := range [...]uint64{p.generation, p.id, uint64(p.at.UnixNano())} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, byte(len(p.classes)))
	for i := range p.classes {
		c := &p.classes[i]
		b = append(b, c.class)
		for _, v := range [...]uint64{c.acked, c.confirmed, c.ackedSum, c.sum, uint64(c.extent.From), uint64(c.extent.To), c.doubt} {
			b = le.AppendUint64(b, v)
		}
	}
	le.PutUint32(b[4:], uint32(len(b)+4))
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parsePosition(b []byte) (*position, error) {
	le := binary.LittleEndian
	if len(b) < slotHead+4 {
		return nil, errPosition
	}
	if magic := string(b[:4]); magic != positionMagic {
		if strings.HasPrefix(magic, positionMagic[:3]) {
			return nil, errOtherPosition
		}
		return nil, errPosition
	}
	n := int(le.Uint32(b[4:]))
	if n < slotHead+4 || n > len(b) || crc32.Checksum(b[:n-4], castagnoli) != le.Uint32(b[n-4:]) {
		return nil, errPosition
	}
	p := &position{generation: le.Uint64(b[8:]), id: le.Uint64(b[16:]), at: time.Unix(0, int64(le.Uint64(b[24:])))}
	count := int(b[slotHead-1])
	if b = b[slotHead : n-4]; len(b) != count*slotClass || count > maxClasses {
		return nil, errPosition
	}
	for ; len(b) > 0; b = b[slotClass:] {
		v := func(i int) uint64 { return le.Uint64(b[1+8*i:]) }
		c := classPosition{b[0], v(0), v(1), v(2), v(3), Extent{int64(v(4)), int64(v(5))}, v(6)}
		c.confirmed, c.sum = max(c.confirmed, c.acked), max(c.sum, c.ackedSum)
		p.classes = append(p.classes, c)
	}
	return p, nil
}

// current is the present position.
func (l *Log) current() *position {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &position{id: l.id, at: l.o.Now(), classes: make([]classPosition, len(l.classes))}
	for i := range l.classes {
		c := l.classes[i]
		at := classPosition{class: c.ID, acked: c.acked, confirmed: c.confirmed, ackedSum: c.ackedSum, sum: c.sum, extent: c.extent}
		if c.doubt > c.acked {
			at.doubt = c.doubt
		}
		p.classes[i] = at
	}
	l.changed = false
	return p
}

// note writes the position after an append, without a sync. It survives a kill of the process;
// after a power cut the synced slot is valid. The caller holds files.
func (l *Log) note() {
	if l.position.file == nil {
		return // until save makes a new one
	}
	if err := l.position.write(l.current()); err != nil {
		l.o.Logger.Warn("cannot write the position of the outbox: records may be sent again", slog.String("error", err.Error()))
	}
}

// save writes the position durably. The caller holds files.
func (l *Log) save() error {
	p := l.current()
	l.saved, l.unsaved = p.at, 0
	var err error
	if l.position.file == nil {
		err = l.position.create(l.o.FS, l.o.Dir, p)
	} else if err = l.position.write(p); err == nil {
		err = l.position.sync()
	}
	if err != nil {
		return fmt.Errorf("write position: %w", err)
	}
	for i := range l.classes {
		c := l.classes[i]
		c.saved = p.classes[i].acked
	}
	return nil
}

// trySave writes the position. A failure only means that records may be sent again.
func (l *Log) trySave() {
	if err := l.save(); err != nil {
		l.o.Logger.Warn("cannot write the position of the outbox: records may be sent again", slog.String("error", err.Error()))
	}
}

// Save writes the position if it has changed. Call it when there is nothing to send.
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
