package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/door"
	"github.com/csigscope/csigscope/dashboards/page"
)

// addExposedFlag adds the flag that opens a door beyond loopback to everybody.
func addExposedFlag(cmd *cobra.Command, of string, exposed *bool) {
	cmd.Flags().BoolVar(exposed, "api-dangerously-exposed", false,
		"let "+of+" be an address that other machines reach without TLS or credentials: everybody there can ask, and read on the way")
}

// open listens at the address that a flag names. Beyond loopback there has to be a
// certificate, and askers have to have credentials, unless exposed.
func (c *apiConfig) open(ctx context.Context, flag, address string, exposed bool, logger *slog.Logger) (*door.Door, error) {
	if err := c.checkListen(flag, address, exposed); err != nil {
		return nil, err
	}
	d, err := door.New(door.Config{Gate: c.gate(), Settings: c.settings(), Open: page.IsFile, Logger: logger})
	if err != nil {
		return nil, usageError{fmt.Errorf("api: %w", err)}
	}
	if err := d.Listen(ctx, address); err != nil {
		return nil, fmt.Errorf("%w: choose another port with %s", err, flag)
	}
	return d, nil
}
