package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/agent"
	"github.com/csigscope/csigscope/replay"
)

// capturer is the running part of collect and export.
type capturer interface {
	// watch adds it to the process's metrics and health.
	watch(*operations) error
	// run captures until ctx ends, and reloads the files on each signal from reload.
	run(ctx context.Context, reload <-chan os.Signal) error
	// lastWords describes the consequences of ending at once.
	lastWords() string
	// close releases its resources.
	close() error
}

// runCapturing opens a capturer and runs it until the command ends.
func runCapturing(cmd *cobra.Command, f *operationsFlags, open func(*operations) (capturer, error)) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	var lastWords atomic.Pointer[func() string] // nil until it is open
	daemon.ExitOnSecond(cmd.Context(), exitFailed, func() string {
		if words := lastWords.Load(); words != nil {
			return (*words)()
		}
		return "nothing was captured"
	})
	o, err := newOperations(cmd, f)
	if err != nil {
		return err
	}
	c, err := open(o)
	if err != nil {
		return err
	}
	if err = c.watch(o); err == nil {
		words := c.lastWords
		lastWords.Store(&words)
		err = o.Run(cmd.Context(), func(ctx context.Context) error { return c.run(ctx, reload) })
	}
	return errors.Join(err, c.close())
}

// capturing is the common part of commands that capture live packets: an agent, and reloads of
// the files that configure it.
type capturing struct {
	cmd    *cobra.Command
	logger *slog.Logger
	read   func() (*network, error) // reads the current files, with the flags over them
	taps   tapFlags
	// section returns the taps and mirrors under a network.
	section func(*network) (*config.Capture, []config.Mirror)
	// use returns the memory consumers of the process under a network.
	use func(*network) config.MemoryUse
	// fixed returns the settings that a reload does not change; started holds those in use.
	fixed   func(*network) (config.Settings, error)
	started config.Settings

	lateness time.Duration // of windows; a change applies at the next start
	network  *network
	memory   config.Memory
	using    atomic.Pointer[network] // the same, for other goroutines
	agent    *agent.Agent
	ops      *operations
	opsFlags *operationsFlags
	// reloaded applies a checked configuration before windows use it. If it fails, nothing changes.
	reloaded func(*network) error
}

// begin reads the files and opens the taps.
func (c *capturing) begin() (err error) {
	if c.network, err = c.read(); err != nil {
		return err
	}
	c.using.Store(c.network)
	if c.started, err = c.fixed(c.network); err != nil {
		return err
	}
	if c.memory, err = c.ops.divideMemory(c.opsFlags, &c.network.Config, c.use(c.network)); err != nil {
		return err
	}
	section, _ := c.section(c.network)
	c.lateness = time.Duration(section.Lateness)
	setup, err := c.setup(c.network)
	if err != nil {
		return err
	}
	c.agent, err = agent.Open(setup, c.logger)
	return err
}

// setup returns the agent's setup under a network.
func (c *capturing) setup(n *network) (s agent.Setup, err error) {
	section, mirrors := c.section(n)
	s = agent.Setup{Settings: n.Settings(), Network: n.Naming(), Interval: time.Duration(section.CommitInterval)}
	s.Settings.Lateness = c.lateness
	if s.Settings.MaxSeries, err = orUsage(c.memory.MaxSeries(&n.Config, c.use(n))); err != nil {
		return s, err
	}
	if s.Instance, err = orUsage(section.Name()); err != nil {
		return s, err
	}
	s.Taps, err = n.Taps(section, mirrors, c.taps.defaults())
	s.Taps.Logger = c.logger
	return s, err
}

// run captures until ctx ends, with further work in front of and behind the pipeline.
func (c *capturing) run(ctx context.Context, reload <-chan os.Signal, before, behind []func(context.Context) error) error {
	began := time.Now()
	err := c.agent.Run(ctx, append(before, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-reload:
				c.reload(ctx)
			}
		}
	}), append(behind, c.beat, c.watchTags, c.watchPrefixes))
	if err != nil {
		return err // windows may be open, so the account would be incomplete
	}
	return c.account(time.Since(began))
}

// account prints the fate of all packets captured since the process started, as replay does,
// and the losses of the taps.
func (c *capturing) account(took time.Duration) error {
	stats, out := c.agent.Stats(), c.cmd.OutOrStdout()
	if len(stats.Rings) == 0 {
		return nil
	}
	r := replay.Result{Counts: stats.Counts(), Excess: stats.Decoded().ExcessReflections, Elapsed: took}
	if c.network.Settings().Finding != nil {
		r.Findings = replay.Findings{}
	}
	for i := range stats.Rings {
		r.Merge(&stats.Rings[i].Tally)
		r.Findings.Note(stats.Rings[i].Findings)
	}
	fmt.Fprintln(out)
	if err := r.WriteAccounting(out); err != nil {
		return err
	}
	taps := c.agent.Taps()
	for _, name := range slices.Sorted(maps.Keys(taps)) {
		n := taps[name].Counters()
		fmt.Fprintf(out, "tap %s: frames %d, dropped by the kernel %d, link losses %d", name, n.Frames, n.Dropped, n.Downs)
		if n.Odd > 0 {
			fmt.Fprintf(out, ", odd for counting in the kernel %d", n.Odd)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// reload applies the current files, or logs why it cannot.
func (c *capturing) reload(ctx context.Context) {
	c.ops.Notifier.Reloading()
	defer c.ops.Notifier.Ready()
	if err := c.tryReload(ctx); err != nil {
		c.logger.Error("reload refused, the earlier configuration stays in force", slog.String("error", err.Error()))
		return
	}
	c.logger.Warn("reloaded", slog.String("epoch", fmt.Sprintf("%016x", c.network.Epoch)), slog.String("taps", c.agent.Taps().String()))
}

func (c *capturing) tryReload(ctx context.Context) error {
	n, err := c.read()
	if err != nil {
		return err
	}
	n.Continue(c.network)
	setup, err := c.setup(n)
	if err != nil {
		return err
	}
	if err := c.agent.Reload(ctx, setup, func() error { return c.reloaded(n) }); err != nil {
		return err
	}
	c.network = n
	c.using.Store(n)
	c.warnFixed(n)
	return nil
}

// warnFixed warns of changed settings that a reload does not apply.
func (c *capturing) warnFixed(n *network) {
	now, err := c.fixed(n)
	if err != nil {
		c.logger.Warn("cannot tell whether changed settings need a restart: restart to apply all of them", slog.String("error", err.Error()))
		return
	}
	warnRestart(c.logger, c.started, now)
}

// warnRestart warns of settings that differ from those at the start.
func warnRestart(logger *slog.Logger, started, now config.Settings) {
	if list := started.Differ(now); len(list) > 0 {
		logger.Warn("changed settings need a restart", slog.String("settings", strings.Join(list, " ")))
	}
}

const (
	// pulse is the interval between checks of the pipeline.
	pulse = time.Second
	// patientIntervals is the number of intervals without a commit after which the process is
	// not alive; patience is the minimum time.
	patientIntervals = 10
	patience         = 30 * time.Second
)

// watchPipeline adds the taps and the pipeline to metrics and health.
func (c *capturing) watchPipeline(o *operations) error {
	o.Health.Require("taps", c.tapsUp)
	stats := c.agent.Stats
	return o.Export(
		metrics.NewTaps(c.tapMetrics),
		metrics.NewMirrors(c.mirrorMetrics),
		metrics.NewDecode(func() decode.Counters { return stats().Decoded() }),
		metrics.NewAggregate(func() aggregate.Counts { return stats().Counts() }),
		metrics.NewProducers(time.Now, c.producers),
		metrics.NewFabric(func() fabric.Counts { return c.using.Load().Fabric.Counts() }),
	)
}

// beat reports to health that commits continue, until ctx ends.
func (c *capturing) beat(ctx context.Context) error {
	section, _ := c.section(c.using.Load())
	beat := c.ops.Health.Watch("commits", max(patience, patientIntervals*time.Duration(section.CommitInterval)))
	defer beat.End()
	tick := time.Tick(pulse)
	for last := uint64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		if n := c.agent.Stats().Barriers; n != last {
			beat.Turn()
			last = n
		}
	}
}

// tapsUp returns nil while the links of all taps are up.
func (c *capturing) tapsUp(context.Context) error { return c.agent.Taps().Up() }

// tapMetrics returns the metrics of the open taps.
func (c *capturing) tapMetrics() (list []metrics.Tap) {
	frames := make(map[string]time.Time)
	for _, r := range c.agent.Stats().Rings {
		if of := cmp.Or(r.Of, r.Name); r.LastFrame.After(frames[of]) {
			frames[of] = r.LastFrame
		}
	}
	for _, t := range c.agent.Taps() {
		n := t.Counters()
		m := metrics.Tap{
			Name: t.Name(), Up: t.State() == capture.LinkUp, Frames: n.Frames, Bytes: n.Bytes, Dropped: n.Dropped, Freezes: n.Freezes,
			Stripped: n.Stripped, SuperFrames: n.SuperFrames, HardwareStamps: n.HardwareStamps, Restamped: n.Restamped, Odd: n.Odd, Unsampled: n.Unsampled,
			Malformed: n.Malformed, Downs: n.Downs, Ups: n.Ups, Reopens: n.Reopens, LastFrame: frames[t.Name()],
		}
		// Frames from the future come from a clock that is ahead; a clock that is behind looks
		// like silence.
		m.ClockOffset = max(time.Until(m.LastFrame), 0)
		list = append(list, m)
	}
	return list
}

// mirrorMetrics returns the metrics of the open mirrors. The results of packets are a fixed
// set.
func (c *capturing) mirrorMetrics() (list []metrics.Mirror) {
	for _, t := range c.agent.Taps() {
		mirror := t.Mirror()
		if mirror == nil {
			continue
		}
		counts := mirror.Counters()
		m := metrics.Mirror{Name: t.Name(), Packets: make(map[string]uint64), Excess: counts.Excess}
		for result, n := range counts.Results {
			m.Packets[decode.Mirror(result).String()] = n
		}
		for _, s := range mirror.Sessions()[1:] {
			m.Sessions = append(m.Sessions, metrics.MirrorSession{
				Name: t.SessionName(s.Name), Frames: s.Frames, Lost: s.Lost, SwitchTimes: s.SwitchTimes, Unusable: s.Unusable,
			})
		}
		list = append(list, m)
	}
	return list
}

func (c *capturing) producers() (list []metrics.Producer) {
	at := make(map[string]int) // a tap has observations if any of its rings has
	for _, r := range c.agent.Stats().Rings {
		i, known := at[r.Name]
		if !known {
			i = len(list)
			at[r.Name], list = i, append(list, metrics.Producer{Name: r.Name})
		}
		list[i].StateBytes += r.StateBytes
		if !r.Ended {
			list[i].Observed = max(list[i].Observed, r.Observed)
		}
	}
	return list
}

// liveMetrics returns the pipeline's counters and its commits.
func (c *capturing) liveMetrics() metrics.Live {
	s := c.agent.Stats()
	m := metrics.Live{Stalled: s.Stalled, Full: s.Full, Reloads: s.Reloads}
	st := c.agent.Commits()
	m.Commits, m.Failed, m.LastCommit = st.Taken, st.Failed, st.Last
	return m
}

// watchTags warns in the log while there is no CSIG, until the first arrives or ctx ends.
func (c *capturing) watchTags(ctx context.Context) error {
	local.WatchTags(ctx, local.TagSource{
		Packets: c.passed,
		Seen: func() (tags, reflections uint64) {
			d := c.agent.Stats().Decoded()
			return d.Tags, d.Reflections
		},
		About: func() []slog.Attr {
			return []slog.Attr{slog.String("tpids", c.using.Load().Domain.TPIDNames()), slog.String("taps", c.agent.Taps().String())}
		},
	}, c.logger)
	return nil
}

// watchPrefixes warns in the log when there is no room for address prefixes, until ctx ends.
func (c *capturing) watchPrefixes(ctx context.Context) error {
	fabric.WatchGroups(ctx, func() *fabric.Fabric { return c.using.Load().Fabric }, c.logger)
	return nil
}

// passed returns the number of packets that passed the taps. It queries the interfaces, since
// the kernel filters out most packets without CSIG.
func (c *capturing) passed() (packets uint64) {
	if len(c.agent.Taps()) == 0 {
		return 0 // a collector only for exporters, which systemd may not allow to query interfaces
	}
	passed, err := capture.InterfacePackets()
	if err != nil {
		c.logger.Debug("packets of interfaces cannot be counted", slog.String("error", err.Error()))
	}
	for _, t := range c.agent.Taps() {
		_, from := t.At("")
		packets += max(passed[from], t.Counters().Frames) // a mirror's address is not an interface
	}
	return packets
}
