package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// expectFolder fails where the folder of a file that a flag names is missing: what takes
// minutes to work out must not find that out in the end.
func expectFolder(flag, path string) error {
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	if err != nil {
		return usageError{fmt.Errorf("%s %q: %w", flag, path, err)}
	}
	if !info.IsDir() {
		return usageError{fmt.Errorf("%s %q: %s is no folder", flag, path, folder)}
	}
	return nil
}

// createFile writes a file, in the place of one that is there.
func createFile(path string, write func(io.Writer) error) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return errors.Join(write(out), out.Close())
}
