package main

import (
	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/answers"
)

// defaultServer is where collect --api-listen answers as a rule.
const defaultServer = "http://127.0.0.1:9465"

func newQueryPath() *cobra.Command {
	var output, server string
	cmd := &cobra.Command{
		Use:   "path",
		Short: "One source and destination: room left and what limits it",
		Long: `path asks the query API of a running csigscope for one source and destination: the room
that is left, the limiting location with the ports that it may be, how sure that is, how
old, and how complete. With --from and --to it asks for history.`,
		Example: `  csigscope query path --src rack1 --dst rack2
  csigscope query path --src rack1 --dst rack2 --signal min_abw --from 2026-01-20T09:00:00Z --to 2026-01-20T10:00:00Z -o json`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	addOutputFlag(cmd, &output)
	flags.StringVar(&server, "server", defaultServer, "`URL` of the query API, such as that of collect --api-listen")
	flags.String("signal", "min_abw_ratio", "min_abw, min_abw_ratio, max_delay, max_nqd or type_N")
	flags.String("level", "location", "where modes are taken: location, set, device or stage")
	flags.String("src", "", "source `GROUP`")
	flags.String("dst", "", "destination `GROUP`")
	flags.String("from", "", "begin of the history (`TIME`, RFC 3339)")
	flags.String("to", "", "end of the history (`TIME`, RFC 3339)")
	flags.Int("windows", 10, "how many of the last windows are added up")
	addCredentialFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		p, err := c.Path(cmd.Context(), flagValues(cmd, "signal", "level", "src", "dst", "from", "to", "windows"))
		if err != nil {
			return asked(err)
		}
		return answers.Path(p).Write(cmd.OutOrStdout(), output)
	}
	return cmd
}
