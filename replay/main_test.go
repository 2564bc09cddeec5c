package replay_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// sharing provides a folder for files that the package's tests share.
type sharing struct{ *testing.M }

func (m sharing) Run() int {
	dir, err := os.MkdirTemp("", "csigscope-replay-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	recordings.dir = dir
	return m.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(sharing{m}) }
