package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/agent"
	"github.com/csigscope/csigscope/ingest/local/journal"
)

// log discards everything.
type log struct{}

func (log) WriteBlock(context.Context, *aggregate.Block) error { return nil }
func (log) Commit(context.Context, []byte) error               { return nil }
func (log) Marks() ([][]byte, error)                           { return nil, nil }

// names records the epochs passed to Use, and how Run ended.
type names struct {
	mu     sync.Mutex
	epochs []uint64
	ended  bool
}

func (n *names) Use(network journal.Network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epochs = append(n.epochs, network.Epoch)
}

func (n *names) Run(ctx context.Context) error {
	<-ctx.Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	return nil
}

// setup captures from no interface, as a collector for exporters does.
func setup(t *testing.T, instance string, epoch uint64) agent.Setup {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	f := fabric.None(domain)
	return agent.Setup{
		Instance: instance, Network: journal.Network{Epoch: epoch, Fabric: f}, Interval: time.Second,
		Settings: window.Settings{Decode: decode.Config{Domain: domain}, Resolver: f, Epoch: epoch, Resolutions: []time.Duration{time.Second}},
	}
}

// TestAgent: work before the pipeline ends with the context, work behind it after the pipeline;
// a refused reload changes nothing.
func TestAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, err := agent.Open(setup(t, "one", 1), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		none := func(*local.Mark, []store.Gap) error { return nil }
		if marks, err := a.Resume(journal.Config{Name: "test one", Log: log{}}, journal.Writers{}, none); err != nil || len(marks) > 0 {
			t.Fatalf("%d marks, %v", len(marks), err)
		}
		n := &names{}
		if err := a.Start(n, nil); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		var order []string
		ended := make(chan error)
		refused := errors.New("refused")
		before := func(ctx context.Context) error {
			adopted := 0
			adopt := func() error { adopted++; return nil }
			if err := a.Reload(ctx, setup(t, "two", 2), adopt); err == nil || !strings.Contains(err.Error(), `instance "two" was "one"`) {
				t.Errorf("another instance: %v", err)
			}
			if err := a.Reload(ctx, setup(t, "one", 2), func() error { return refused }); !errors.Is(err, refused) || adopted > 0 {
				t.Errorf("refused: %v, %d adopted", err, adopted)
			}
			if err := a.Reload(ctx, setup(t, "one", 3), adopt); err != nil || adopted != 1 || a.Stats().Reloads != 1 {
				t.Errorf("reload: %v, %d adopted, %d reloads", err, adopted, a.Stats().Reloads)
			}
			end()
			<-ctx.Done()
			order = append(order, "before")
			return nil
		}
		behind := func(ctx context.Context) error {
			<-ctx.Done()
			order = append(order, "behind")
			return nil
		}
		go func() {
			ended <- a.Run(ctx, []func(context.Context) error{before}, []func(context.Context) error{behind})
		}()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(order, []string{"before", "behind"}) || !n.ended || !slices.Equal(n.epochs, []uint64{1, 3}) {
			t.Errorf("ended in the order %q, names %t, epochs %d", order, n.ended, n.epochs)
		}
		if a.Commits().Taken == 0 || !strings.Contains(a.PendingLoss(), "as a gap") {
			t.Errorf("commits %+v, %s", a.Commits(), a.PendingLoss())
		}
	})
}
