package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/csigscope/csigscope/capture"
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

// keepCaptures fails where a file that a flag names is one of the captures, which writing it
// would destroy, or lies in a folder that is read, where it would be taken for one.
func keepCaptures(flag, path string, captures []string) error {
	out, err := os.Stat(path)
	folder, folderErr := os.Stat(filepath.Dir(path))
	for _, name := range captures {
		in, inErr := os.Stat(name)
		switch {
		case inErr != nil: // whoever reads it says so
		case err == nil && os.SameFile(in, out):
			return usageError{fmt.Errorf("%s %q: is a capture that is read: name another file", flag, path)}
		case folderErr == nil && os.SameFile(in, folder):
			return usageError{fmt.Errorf("%s %q: lies in the folder that is read: name another one", flag, path)}
		}
	}
	return nil
}

// inFolders are the captures, with those of each folder in its place: an output may lie
// beside them. What cannot be listed is left out: whoever reads it says so.
func inFolders(captures []string) (list []string) {
	for _, name := range captures {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			found, _ := capture.Files(name)
			list = append(list, found...)
			continue
		}
		list = append(list, name)
	}
	return list
}

// createFile writes a file, in the place of one that is there.
func createFile(path string, write func(io.Writer) error) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return errors.Join(write(out), out.Close())
}
