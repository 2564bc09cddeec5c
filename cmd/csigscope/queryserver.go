package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
)

// serverQuestion is how a command that asks a store asks a running csigscope instead.
type serverQuestion struct {
	parameters []string // flags that are parameters of the same names
	windows    int      // default of --windows; 0: there is none
	watch      bool     // can go on
	ask        func(context.Context, *client.Client, url.Values) (*tabular.Listing, error)
}

// askServer lets a command ask a server, where one is named.
func askServer(cmd *cobra.Command, q serverQuestion) *cobra.Command {
	var server string
	var watch bool
	flags := cmd.Flags()
	const about = "ask the query API at this `URL`, such as http://127.0.0.1:9465 of collect --api-listen, instead of a store"
	if q.windows == 0 {
		flags.StringVar(&server, "server", "", about)
	} else {
		flags.StringVar(&server, "server", "", about+": for the last windows (--from and --to: history)")
		flags.Int("windows", q.windows, "with --server: how many of the last windows are taken")
		q.parameters = append(q.parameters, "windows")
	}
	if q.watch {
		flags.BoolVar(&watch, "watch", false, "with --server: go on with each window that closes, as query watch does")
	}
	addCredentialFlags(cmd)
	stored := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if server == "" {
			if watch {
				return usageError{errors.New("--watch: needs the --server whose windows close")}
			}
			return stored(cmd, args)
		}
		if err := ofServer(cmd, q.parameters); err != nil {
			return err
		}
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		parameters := flagValues(cmd, q.parameters...)
		if watch {
			w := &watching{cmd: cmd, output: flagText(cmd, "output")}
			c.Retrying = w.retrying
			return asked(c.Watch(cmd.Context(), parameters, w.handle))
		}
		t, err := q.ask(cmd.Context(), c, parameters)
		if err != nil {
			return asked(err)
		}
		if len(t.Rows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: the server has nothing that fits: --from and --to ask for history, "+server+"/api/v1/health says what it has")
		}
		return t.Write(cmd.OutOrStdout(), flagText(cmd, "output"))
	}
	return cmd
}

// ofServer refuses flags that a server is not asked with.
func ofServer(cmd *cobra.Command, parameters []string) (err error) {
	others := []string{"server", "watch", "output", "token-file", "server-ca", "client-cert", "client-key"}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(parameters, f.Name) && !slices.Contains(others, f.Name) {
			err = usageError{fmt.Errorf("--%s: is of a store, and --server names none: leave out one of them", f.Name)}
		}
	})
	return err
}

// flagValues are the flags that were given, as parameters.
func flagValues(cmd *cobra.Command, names ...string) url.Values {
	values := url.Values{}
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		parameter := strings.ReplaceAll(name, "-", "_")
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values[parameter] = list.GetSlice()
		} else if text := f.Value.String(); text != "" {
			values.Set(parameter, text)
		}
	}
	return values
}

func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// asked makes what the server finds wrong with a question a mistake in usage, and says what
// to look at where there is none.
func asked(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == 422 {
		return usageError{err}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: nothing serves there: start collect with --api-listen, query serve or demo, or name the address of one with --server", err)
	}
	return err
}
