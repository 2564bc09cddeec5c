package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
)

// collectFlags are the flags of collect, besides flags of the section collect.
type collectFlags struct {
	network    networkFlags
	ops        operationsFlags
	dsn        string
	box        outboxFlags
	interfaces []string
	taps       tapFlags
	exposed    bool
	api        string // address
	apiExposed bool
}

func newCollectCommand() *cobra.Command {
	var f collectFlags
	cmd := &cobra.Command{
		Use:         "collect",
		Annotations: map[string]string{ownEnd: "true"},
		Short:       "Capture live packets into the store, all day",
		Long: `collect captures packets on network interfaces, aggregates them, and stores windows as they close.
With --ingest-listen it also takes windows that csigscope export sends from other hosts. Capturing
needs CAP_NET_RAW. With --capture ebpf the kernel counts packets instead of copying them: csigscope
export --check says what that needs.

SIGTERM or Ctrl-C closes all windows, stores them and ends the process. If the store does not take
them within 10 s, they wait in the outbox and the exit code is 1. A second signal ends the process
at once, with exit code 1.

SIGHUP reads the configuration and the fabric file again. If one has a mistake, the log reports it and
nothing changes. Otherwise taps, permitted exporters and their limits, and the origins and limits of
the section api change; each packet counts once. Files with tokens, certificates and authorities are
read again when they change.

The store may be away, also at the start: rows and names wait on disk. A store that answers within
5 s of the start and refuses rows (an old server, an earlier schema, a wrong password, missing rights)
ends collect with exit code 1.

Windows of 1 s close after their lateness (collect.lateness) and are committed to disk soon after. A
killed process loses its open windows of 1 s and shorter, about the last 3 s, which the next process
records as a gap.

--metrics-listen serves /metrics for Prometheus, /healthz (200 while windows are committed) and
/readyz, which is 503 with the reason while the link of a tap is down, the store was never reached,
refuses rows or lets a row wait for more than 2 minutes, or the outbox is full or fails.
Supports systemd notification (sd_notify).`,
		Example: `  csigscope collect --interface eth1 --fabric fabric.yaml
  csigscope collect --config csigscope.yaml --fabric fabric.yaml
  csigscope config check --config csigscope.yaml --fabric fabric.yaml && pkill -HUP -f '^[^ ]*csigscope collect'
  csigscope collect --config csigscope.yaml --store clickhouse://csigscope@db.example:9440/csigscope?secure=true`,
		Args: noArgs,
	}
	f.network.add(cmd.Flags())
	addStoreFlag(cmd, &f.dsn)
	f.box.add(cmd.Flags())
	flags := cmd.Flags()
	config.Flag(flags, "instance", "collect.instance")
	flags.StringSliceVar(&f.interfaces, "interface", nil, "also capture from these network interfaces, `INTERFACE,...`; they need no entry in the configuration file")
	f.taps.add(flags)
	config.Flag(flags, "capture", "collect.capture")
	config.Flag(flags, "odd-packets", "collect.odd_packets")
	config.Flag(flags, "commit-interval", "collect.commit_interval")
	config.Flag(flags, "ingest-listen", "collect.ingest.listen")
	flags.BoolVar(&f.exposed, "ingest-dangerously-exposed", false, "allow --ingest-listen at an address that other machines reach without TLS or credentials: anybody there can write rows, and read those of others in transit")
	flags.StringVar(&f.api, "api-listen", "", "serve the page and the query API, with the last windows from memory, at this `ADDRESS` such as 127.0.0.1:9465; beyond loopback this needs TLS and credentials in the section api")
	addExposedFlag(cmd, "--api-listen", &f.apiExposed)
	f.ops.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runCapturing(cmd, &f.ops, func(o *operations) (capturer, error) { return newCollector(cmd, &f, o) })
	}
	return cmd
}

// read reads the configuration and the fabric file, with the flags over them.
func (f *collectFlags) read(cmd *cobra.Command) (*network, error) {
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return nil, err
	}
	n.Fabric.UseSightingsLive()
	n.Config.Override(cmd.Flags())
	if cmd.Flags().Changed("store") {
		n.Config.Store.DSN = config.NewDSN(f.dsn)
	}
	c := &n.Config.Collect
	if c.Taps, err = withInterfaces(c.Taps, f.interfaces); err != nil {
		return nil, usageError{err}
	}
	if err := c.Ingest.CheckListen(); err != nil && !f.exposed {
		return nil, usageError{fmt.Errorf("%w: use tls and tokens of collect.ingest instead, or allow it with --ingest-dangerously-exposed", err)}
	}
	if err := errors.Join(c.Check(), f.taps.check()); err != nil {
		return nil, usageError{err}
	}
	if f.api != "" {
		if err := checkAPIAddress(&n.Config.API, "--api-listen", f.api, f.apiExposed); err != nil {
			return nil, err
		}
	}
	if len(c.Taps)+len(c.Mirrors) == 0 && c.Ingest.Listen == "" {
		return nil, usageError{errors.New("collect: nothing to collect: name an --interface or an --ingest-listen address, or taps in the section collect of --config")}
	}
	return n, nil
}

// withInterfaces returns the taps with those of --interface added. It refuses an interface with the
// name of another tap.
func withInterfaces(list []config.Tap, interfaces []string) ([]config.Tap, error) {
	for _, name := range interfaces {
		if slices.ContainsFunc(list, func(t config.Tap) bool { return t.TapName() == name }) {
			return nil, fmt.Errorf("--interface %q: the configuration or this flag names that tap already: name it once", name)
		}
		list = append(list, config.Tap{Interface: config.Text(name)})
	}
	return list, nil
}
