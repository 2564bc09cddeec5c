package daemon

import (
	"fmt"
	"os"
	"path/filepath"
)

// Holding are the folders that hold files, and those that links to files lead to: a file
// that is replaced is another one, in the same folder. Empty names are passed over.
func Holding(files ...string) (folders []string) {
	for _, file := range files {
		if file == "" {
			continue
		}
		folders = append(folders, filepath.Dir(file))
		if real, err := filepath.EvalSymlinks(file); err == nil && filepath.Dir(real) != filepath.Dir(file) {
			folders = append(folders, filepath.Dir(real))
		}
	}
	return folders
}

// Make makes the folders to write that are not there, for their owner alone: a rule can only
// be of what is.
func (f *Folders) Make() error {
	for _, dir := range f.Write {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	return nil
}
