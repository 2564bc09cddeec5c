package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/ingest/credential"
)

func newDashboardsPushCommand() *cobra.Command {
	var f dashboardFlags
	var address, tokenFile string
	var force, plain bool
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Put dashboards into a running Grafana",
		Long: `push writes the dashboards over Grafana's HTTP API into the folder csigscope, which it
makes. It needs a service account token with the role Editor. A dashboard that somebody
saved in Grafana since the last push is left alone without --force; one that is provisioned
from a file is left alone anyhow. Data sources are chosen in the dashboards themselves.`,
		Example: `  csigscope dashboards push --url https://grafana.example --token-file token --fabric fabric.yaml`,
		Args:    noArgs,
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&address, "url", "", "`URL` of Grafana")
	flags.StringVar(&tokenFile, "token-file", "", "`FILE` with the token of a service account")
	flags.BoolVar(&force, "force", false, "replace dashboards that somebody changed in Grafana")
	flags.BoolVar(&plain, "insecure-token", false, "send the token without TLS to another machine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkGrafana(address, plain); err != nil {
			return usageError{err}
		}
		if tokenFile == "" {
			return usageError{errors.New("--token-file is missing: expected a file with the token of a service account")}
		}
		token, err := credential.ReadToken(tokenFile)
		if err != nil {
			return usageError{err}
		}
		o, err := f.options()
		if err != nil {
			return err
		}
		all, err := grafana.Dashboards(o)
		if err != nil {
			return err
		}
		p := grafana.Pusher{URL: address, Token: token, Force: force}
		done, err := p.Push(cmd.Context(), all)
		for _, d := range done {
			fmt.Fprintf(cmd.OutOrStdout(), "%s, version %d: %s\n", d.Title, d.Version, d.URL)
		}
		return err
	}
	return cmd
}

// checkGrafana wants an address that a token may be sent to.
func checkGrafana(address string, plain bool) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("--url %q: expected the URL of Grafana such as https://grafana.example", address)
	}
	if credential.InClear(u) && !plain {
		return fmt.Errorf("--url %s: the token would travel without TLS: use https, or allow it with --insecure-token", address)
	}
	return nil
}
