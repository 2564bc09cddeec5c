package remote

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) {
	if chdbtest.InChild() {
		chdbtest.Main(m)
	}
	if errand := os.Getenv(childVariable); errand != "" {
		runChild(errand)
		return
	}
	goleak.VerifyTestMain(m)
}
