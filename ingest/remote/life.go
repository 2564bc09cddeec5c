package remote

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const incarnationFile = "incarnation"

// nextIncarnation returns the incarnation of a new process for the spool in a folder: higher
// than all before, and, if the folder was lost, higher than earlier ones by the clock.
func nextIncarnation(dir string, now time.Time) (uint64, error) {
	name := filepath.Join(dir, incarnationFile)
	last := uint64(0)
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, fmt.Errorf("read incarnation: %w", err)
	default:
		// A damaged file is no reason to stop: the clock then decides.
		last, _ = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63)
	}
	next := max(last+1, uint64(max(now.UnixNano(), 1)))
	return next, writeFile(name, []byte(strconv.FormatUint(next, 10)+"\n"))
}

// unfinished is the suffix of a file that writeFile has not renamed yet.
const unfinished = ".new"

// writeFile replaces a file durably and atomically. A crash may leave an unfinished one.
func writeFile(name string, data []byte) error {
	temp := name + unfinished
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Producer returns the producer of an exporter's stream, as in aggregate.Source: a hash of the
// exporter's identity and the stream's name, so that a client cannot write rows of another
// identity. It is cryptographic because exporters choose stream names.
func Producer(identity, stream string) uint64 {
	return producerOf("partials", identity, stream)
}

// observedProducer returns the producer of a stream's observations, whose numbers are
// independent of those of blocks.
func observedProducer(identity, stream string) uint64 {
	return producerOf("observations", identity, stream)
}

func producerOf(what, identity, stream string) uint64 {
	var text []byte
	for _, s := range []string{what, identity, stream} {
		text = binary.AppendUvarint(text, uint64(len(s)))
		text = append(text, s...)
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:8])
}
