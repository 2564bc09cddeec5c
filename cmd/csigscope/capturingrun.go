package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// capturer is what collect and export run, once it is open.
type capturer interface {
	// watch makes it part of the process's metrics and health.
	watch(*operations) error
	// run captures until ctx ends, and reads the files again when it is told to.
	run(ctx context.Context, reload <-chan os.Signal) error
	// lastWords are what ending at once means.
	lastWords() string
	// close lets go of what is open.
	close() error
}

// runCapturing opens a capturer and runs it until the command is told to end.
func runCapturing(cmd *cobra.Command, f *operationsFlags, open func() (capturer, error)) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	o, err := newOperations(cmd, f)
	if err != nil {
		return err
	}
	c, err := open()
	if err != nil {
		return err
	}
	if err = c.watch(o); err == nil {
		err = o.run(endsTwice(cmd.Context(), c.lastWords), func(ctx context.Context) error { return c.run(ctx, reload) })
	}
	return errors.Join(err, c.close())
}

// endsTwice is a context after whose end, by a signal, the next signal ends the process,
// once it has said what that means.
func endsTwice(ctx context.Context, lastWords func() string) context.Context {
	context.AfterFunc(ctx, func() {
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		fmt.Fprintln(os.Stderr, "csigscope: ended at once:", lastWords())
		os.Exit(exitFailed)
	})
	return ctx
}
