package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// Spool replaces what can be read only once by copies in a new temporary folder
// ($TMPDIR): "-", which is standard input, and named pipes. Their contents are then
// their identities as those of files are. It blocks until all of them have ended or
// ctx does. remove deletes the copies; it is to be called in any case.
func Spool(ctx context.Context, paths []string) (files []string, remove func() error, err error) {
	dir := ""
	remove = func() error {
		if dir == "" {
			return nil
		}
		return os.RemoveAll(dir)
	}
	files = make([]string, len(paths))
	for i, path := range paths {
		if files[i] = path; !readOnce(path) {
			continue
		}
		if dir == "" {
			if dir, err = os.MkdirTemp("", "csigscope-"); err != nil {
				return nil, remove, fmt.Errorf("spool capture: %w", err)
			}
		}
		// The base name stays: it may be the name of a tap.
		name := "stdin"
		if path != "-" {
			name = filepath.Base(path)
		}
		files[i] = filepath.Join(dir, strconv.Itoa(i), name)
		if err := spool(ctx, path, files[i]); err != nil {
			return nil, remove, fmt.Errorf("spool capture %q: %w", path, err)
		}
	}
	return files, remove, nil
}

// readOnce reports whether a path is standard input or no regular file.
func readOnce(path string) bool {
	info, err := os.Stat(path)
	return path == "-" || err == nil && !info.IsDir() && !info.Mode().IsRegular()
}

// spool copies a stream to a file. Reading a pipe cannot always be interrupted, so
// that ctx only ends the waiting for it.
func spool(ctx context.Context, from, to string) error {
	if err := os.Mkdir(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- copyStream(from, to) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func copyStream(from, to string) (err error) {
	in := os.Stdin
	if from != "-" {
		if in, err = os.Open(from); err != nil {
			return err
		}
		defer in.Close()
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
