package remote_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/remote"
)

// A transport that holds CSIG data anyway, such as the library of a NIC, hands them in
// as they are: the collector aggregates them.
func ExampleStream_Observe() {
	ctx, stop := context.WithCancel(context.Background())
	client, err := remote.OpenClient(remote.ClientConfig{
		Collectors: []string{"https://collector.example:4319"},
		TLS:        remote.TLSFiles{Cert: "/etc/nic/tls.crt", Key: "/etc/nic/tls.key", CA: "/etc/nic/ca.crt"},
		Dir:        "/var/spool/nic",
	})
	if err != nil {
		fmt.Println(err)
	}
	done := make(chan error)
	go func() { done <- client.Run(ctx) }()

	stream, err := client.Stream("mlx5_0")
	if err != nil {
		fmt.Println(err)
	}
	// Once a second, what came since the last time:
	compact := csig.Layout{Profile: csig.UEC050, Format: csig.Compact}
	err = stream.Observe(ctx, []decode.Observation{{
		TimeNS: time.Now().UnixNano(), Bytes: 4158, Kind: decode.Tag, Flags: decode.HasAddrs,
		Src: netip.MustParseAddr("10.0.1.7").As16(), Dst: netip.MustParseAddr("10.0.3.2").As16(),
		Tag: csig.Tag{Layout: compact, T: 1, S: 11, LM: 23},
	}})
	if err != nil {
		fmt.Println(err)
	}

	stop()
	if err := <-done; err != nil {
		fmt.Println(err)
	}
	if err := client.Close(); err != nil { // what was not sent waits on disk
		fmt.Println(err)
	}
}
