package handover

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
)

// TestDescriber: names appear while taps and reloads request their description. In the end all
// names of the last networks are described.
func TestDescriber(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	client, err := remote.OpenClient(remote.ClientConfig{Collectors: []string{"http://127.0.0.1:1"}, Dir: t.TempDir(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	var networks []journal.Network
	for i := range 4 {
		networks = append(networks, journal.Network{Epoch: uint64(i), Text: fmt.Sprint("configuration ", i), Fabric: fabric.None(domain)})
	}
	d := NewDescriber(client, logger)
	ctx, end := context.WithCancel(t.Context())
	var running, using sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	const names = 50
	using.Go(func() {
		for i := range names {
			for _, n := range networks {
				n.Fabric.Group(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}))
			}
		}
	})
	using.Go(func() {
		for _, n := range networks {
			d.Use(n)
			d.Use(n)
		}
	})
	using.Go(func() {
		for range 10 {
			d.sendNew()
		}
	})
	using.Wait()
	end()
	running.Wait()
	if len(d.networks) != journal.RecentNetworks || len(d.described) != len(networks) {
		t.Fatalf("%d networks are held and %d described, want %d and %d", len(d.networks), len(d.described), journal.RecentNetworks, len(networks))
	}
	for _, n := range networks[len(networks)-journal.RecentNetworks:] {
		if got, want := d.described[n.Epoch], uint64(len(n.Fabric.Groups())+len(n.Fabric.Locations())); got != want || want < names {
			t.Errorf("%s: %d names are sent, want %d, and %d at least", n.Text, got, want, names)
		}
	}
}
