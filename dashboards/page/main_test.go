package page_test

import (
	"os"
	"testing"

	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

func TestMain(m *testing.M) { os.Exit(pagetest.Main(m)) }
