package emitter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// create makes the truth write its lines to a file.
func (t *truth) create(path string, of *taps) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create truth: %w", err)
	}
	t.file, t.out = file, bufio.NewWriterSize(file, captureBuffer)
	t.json = json.NewEncoder(t.out)
	line, err := t.headerLine(of, 0)
	if err != nil {
		return err
	}
	t.header = len(line) + len(of.list)*tapCounts*maxDigits
	line, err = t.headerLine(of, t.header)
	if err != nil {
		return err
	}
	if _, err := t.out.Write(line); err != nil {
		return fmt.Errorf("write truth: %w", err)
	}
	return nil
}

// What the counts of a tap may grow by in the header.
const (
	tapCounts = 5
	maxDigits = 20
)

// headerLine is the first line of the file with a line end, filled up with blanks to
// the size. It is written again when it is known what taps did.
func (t *truth) headerLine(of *taps, size int) ([]byte, error) {
	line, err := json.Marshal(newTruthHeader(t.scenario, of))
	if err != nil {
		return nil, fmt.Errorf("write truth: %w", err)
	}
	line = append(line, bytes.Repeat([]byte{' '}, max(size-len(line)-1, 0))...)
	return append(line, '\n'), nil
}

// close writes what taps did into the header and ends the file, if there is one.
func (t *truth) close(of *taps) error {
	if t.file == nil {
		return nil
	}
	err := t.out.Flush()
	if line, bad := t.headerLine(of, t.header); bad != nil {
		err = errors.Join(err, bad)
	} else if _, bad := t.file.WriteAt(line, 0); bad != nil {
		err = errors.Join(err, bad)
	}
	if err = errors.Join(err, t.file.Close()); err != nil {
		return fmt.Errorf("close truth: %w", err)
	}
	return nil
}
