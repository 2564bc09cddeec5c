package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFolders: a link adds its own folder and that of its target; missing folders in Write are
// created.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	f := Folders{Write: []string{filepath.Join(dir, "a", "b"), filepath.Join(dir, "links")}}
	if err := f.Make(); err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "a", "b", "file"), filepath.Join(dir, "links", "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	got := Holding("", file, link, filepath.Join(dir, "absent"))
	if want := []string{filepath.Dir(file), filepath.Dir(link), filepath.Dir(file), dir}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := (&Folders{Write: []string{filepath.Join(file, "below")}}).Make(); err == nil {
		t.Error("a folder is made in a file")
	}
}
