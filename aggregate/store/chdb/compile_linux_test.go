package chdb_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// noNewCode is the argument of a child that may not make memory executable.
const noNewCode = "no-new-code"

func init() {
	if !chdbtest.InChild() || !slices.Contains(os.Args, noNewCode) {
		return
	}
	if err := unix.Prctl(unix.PR_SET_MDWE, unix.PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "forbid executable memory:", err)
		os.Exit(1)
	}
}

// TestNoNewCode: a process that may not make memory executable, as under systemd's
// MemoryDenyWriteExecute, answers frequent queries, which the engine compiles elsewhere.
func TestNoNewCode(t *testing.T) {
	if _, err := unix.PrctlRetInt(unix.PR_GET_MDWE, 0, 0, 0, 0); errors.Is(err, unix.EINVAL) {
		t.Skip("SKIPPED: this kernel cannot forbid executable memory (Linux 6.3)")
	}
	options := chdbtest.Options(t, t.TempDir())
	options.Command = append(options.Command, noNewCode)
	reader := open(t, start(t, options), chdb.RoleReader)
	for range 5 {
		const sql = "SELECT sum(n) FROM (SELECT number % 3 AS k, sum(number * 2 + 1) + max(number) AS n FROM numbers(1000) GROUP BY k ORDER BY k, n)"
		if got := value[uint64](t, reader, sql); got != 1_002_994 {
			t.Fatalf("got %d, want 1002994", got)
		}
	}
}
