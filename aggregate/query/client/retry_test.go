package client_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/client"
)

// TestWatchTellsWhy: who watches a server that is not there hears of it before the wait.
func TestWatchTellsWhy(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	c, err := client.New(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	c.Retrying = func(why error, wait time.Duration) {
		if told++; !errors.Is(why, syscall.ECONNREFUSED) || wait <= 0 {
			t.Errorf("told of %v, %s", why, wait)
		}
		cancel()
	}
	err = c.Watch(ctx, nil, func(*client.Event) error { return nil })
	if !errors.Is(err, context.Canceled) || told != 1 {
		t.Errorf("told %d times, ended with %v", told, err)
	}
}
