package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/ingest/local"
)

// collectFlags are what collect's command line says.
type collectFlags struct {
	network    networkFlags
	ops        operationsFlags
	dsn        string
	box        outboxFlags
	instance   string
	interfaces []string
	taps       tapFlags
	dir        string        // of marks
	every      time.Duration // between them
	ingest     string        // address
	exposed    bool
	api        string // address
	apiExposed bool
}

func newCollectCommand() *cobra.Command {
	var f collectFlags
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Capture live packets into the store, all day",
		Long: `collect captures the packets of network interfaces, runs them through the pipeline and
stores windows as they close. It runs until it is told to end: SIGTERM or Ctrl-C takes
in what was captured by then, closes all windows and stores them. Where the store does not
take them, it ends within a minute, with exit code 1: they wait in the outbox. A second
signal ends at once, with exit code 1. Capturing takes CAP_NET_RAW. With --ingest-listen it also
takes in what csigscope export hands over from other hosts.

collect captures while the store is away, from the start: rows and names wait on disk, and
the schema is made or migrated when the store comes. A store that answers within 5 s of
the start and refuses rows (an old server, an earlier schema, a wrong password, missing
rights) ends collect with exit code 1. Where it refuses them later, rows wait until that
is mended, and the log says what it is.

SIGHUP reads the configuration and the fabric file again. One that is wrong is refused
with a line in the log, and nothing changes. Otherwise windows close under the old one
and go on under the new, taps come and go, and every packet is counted once. The exporters
that may hand in and their limits change as well, and origins and limits of the section api;
files with tokens, certificates and authorities are read again when they change.

Once a second the windows that have closed go to the outbox on disk. A process that is
killed loses those of 1 s and shorter that are open, about the last 3 s: the next one
records them as a gap, and windows of 1 min are made of the seconds that were stored.

What single packets show that breaks the protocol or the configuration, and ports that are
stuck from window to window, is stored by the minute (csigscope query findings, section
findings of the configuration).

--ops-listen serves /metrics for Prometheus, /healthz (200 while rounds go on) and
/readyz, which is 503 and says why while the link of a tap is down, the store was never
reached or refuses rows, or the store is away and the outbox full. systemd is told when
collect captures, reloads and ends.`,
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
	flags.StringVar(&f.instance, "instance", "", "`NAME` of this process among others, by which its rows are identified: it has to stay the same (default the host's name)")
	flags.StringSliceVar(&f.interfaces, "interface", nil, "capture from this network `INTERFACE` as well, which the configuration file need not name")
	f.taps.add(flags)
	flags.DurationVar(&f.every, "checkpoint", local.DefaultInterval, "time between rounds that make closed windows durable; 0 is one every second, without marks of what a killed process missed")
	flags.StringVar(&f.dir, "checkpoint-dir", "", "`FOLDER` of the marks of rounds (default in that of the outbox)")
	flags.StringVar(&f.ingest, "ingest-listen", "", "take in what csigscope export hands over, at this `ADDRESS` such as 127.0.0.1:4319; beyond loopback with TLS and credentials alone")
	flags.BoolVar(&f.exposed, "ingest-dangerously-exposed", false, "let --ingest-listen be an address that other machines reach without TLS or credentials: everybody there can write, and read on the way")
	flags.StringVar(&f.api, "api-listen", "", "answer questions about the last windows at this `ADDRESS` such as 127.0.0.1:9465: the query API and the page; beyond loopback with TLS and credentials of the section api alone")
	addExposedFlag(cmd, "--api-listen", &f.apiExposed)
	f.ops.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runCapturing(cmd, &f.ops, func() (capturer, error) { return newCollector(cmd, &f) })
	}
	return cmd
}

// read reads the configuration and the fabric file, with the flags over them.
func (f *collectFlags) read(cmd *cobra.Command) (*network, *collectConfig, error) {
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return nil, nil, err
	}
	c := n.config.Collect
	if f.instance != "" {
		c.Instance = word{text: f.instance}
	}
	if f.dir != "" {
		c.Checkpoint.Dir = f.dir
	}
	if cmd.Flags().Changed("checkpoint") {
		c.Checkpoint.Every = intervalOf(f.every)
	}
	if f.ingest != "" {
		c.Ingest.Listen = word{text: f.ingest}
	}
	c.Taps = append(c.Taps[:len(c.Taps):len(c.Taps)], tapsOf(f.interfaces)...)
	if err := errors.Join(c.check(), c.Ingest.checkListen(f.exposed), f.taps.check()); err != nil {
		return nil, nil, usageError{err}
	}
	if f.api != "" {
		if err := n.config.API.checkListen("--api-listen", f.api, f.apiExposed); err != nil {
			return nil, nil, err
		}
	}
	if len(c.Taps)+len(c.Mirrors) == 0 && c.Ingest.Listen.text == "" {
		return nil, nil, usageError{errors.New("collect: nothing to collect: name an --interface or an --ingest-listen address, or taps in the section collect of --config")}
	}
	return n, &c, nil
}

// tapsOf are those of --interface.
func tapsOf(interfaces []string) (list []collectTap) {
	for _, name := range interfaces {
		list = append(list, collectTap{Interface: word{text: name}})
	}
	return list
}
