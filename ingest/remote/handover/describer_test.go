package handover

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
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
	if len(d.networks) != journal.RecentNetworks {
		t.Fatalf("%d networks are held, want %d", len(d.networks), journal.RecentNetworks)
	}
	for i, n := range networks[len(networks)-journal.RecentNetworks:] {
		if got, want := d.networks[i].names, uint64(len(n.Fabric.Groups())+len(n.Fabric.Locations())); got != want || want < names {
			t.Errorf("%s: %d names are sent, want %d, and %d at least", n.Text, got, want, names)
		}
	}
}

// TestDescriberOfOneEpoch: two networks of one epoch, as after a reload that moves a tap, are described
// again only when one of them has new names.
func TestDescriberOfOneEpoch(t *testing.T) {
	dir, logger := t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))
	client, err := remote.OpenClient(remote.ClientConfig{Collectors: []string{"http://127.0.0.1:1"}, Dir: dir, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	d := NewDescriber(client, logger)
	var networks []journal.Network
	for i := range journal.RecentNetworks {
		n := journal.Network{Epoch: 1, Text: "configuration", Fabric: fabric.None(domain)}
		for j := range byte(i + 1) {
			n.Fabric.Group(netip.AddrFrom4([4]byte{10, 0, j, 1}))
		}
		networks = append(networks, n)
		d.Use(n)
	}
	// describes reports whether names are sent, by the files of the spool.
	describes := func() bool {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "description-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		d.sendNew()
		files, err = filepath.Glob(filepath.Join(dir, "description-*"))
		return err == nil && len(files) > 0
	}
	if describes() {
		t.Error("names are sent again")
	}
	networks[0].Fabric.Group(netip.AddrFrom4([4]byte{10, 1, 0, 1}))
	if !describes() {
		t.Error("a new name is not sent")
	}
}
