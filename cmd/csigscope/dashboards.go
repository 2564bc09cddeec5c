package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/dashboards/grafana"
	"github.com/csigscope/csigscope/ingest/edge"
)

// dashboardFlags are the common flags of all dashboards commands.
type dashboardFlags struct {
	network    networkFlags
	clickhouse string
	database   string
	user       string
	prometheus string
	tables     bool
	fine       time.Duration
}

func newDashboardsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dashboards",
		Short: "Write Grafana dashboards, or push them",
		Long: `dashboards makes Grafana's dashboards of stored rows:

  Fabric    bottlenecks over time, top locations, the states of the 30 worst cells, coverage
  Cells     source by destination: mean and mode; then one cell, its path, flows, findings
  Job       one group's steps: period and idle gaps, values over time, worst flows
  Pipeline  csigscope itself and its alerts, from Prometheus

They need Grafana 12 or 13 with the data source plugin grafana-clickhouse-datasource, which asks a
ClickHouse server, or the embedded store at the address of query serve --clickhouse-listen, over
HTTP. They were tried in Grafana 12.3 with version 4.14 of that plugin. With --fabric, locations
have the colours of the page; if two are too similar, the matrices change one of them. The panel
plugin ` + grafana.MatrixPanelID + `, which write makes, draws the two matrices; with --tables
they are tables.`,
	}
	cmd.AddCommand(newDashboardsWriteCommand(), newDashboardsPushCommand())
	return cmd
}

func (f *dashboardFlags) add(cmd *cobra.Command) {
	f.network.add(cmd.Flags())
	cmd.Flags().DurationVar(&f.fine, "fine", grafana.DefaultOptions().Fine, "length of the finest windows that are stored")
	cmd.Flags().BoolVar(&f.tables, "tables", false, "draw matrices as tables, for a Grafana that does not load the plugin "+grafana.MatrixPanelID)
}

func (f *dashboardFlags) options() (grafana.Options, error) {
	o := grafana.DefaultOptions()
	o.Tables, o.Fine = f.tables, f.fine
	if f.fine <= 0 || f.fine >= time.Second {
		return o, usageError{fmt.Errorf("--fine %s: expected the length of the windows below 1s that replay or collect stores, such as 10ms", f.fine)}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return o, err
	}
	o.Thresholds = n.Config.States.Thresholds()
	if f.network.fabric != "" {
		o.Locations = n.Fabric.Locations()
	}
	return o, nil
}

func newDashboardsWriteCommand() *cobra.Command {
	var f dashboardFlags
	var dir string
	var alerts bool
	cmd := &cobra.Command{
		Use:   "write",
		Short: "Write dashboards, the panel plugin and the files that provision them",
		Long: `write makes a folder with dashboards, with the files that provision them and their data sources,
and with the panel plugin that draws the matrices. The plugin is not signed: Grafana loads it when
allow_loading_unsigned_plugins in the section plugins of its settings names it, or with the line of
grafana.env in its environment. Grafana reads the store's password from its environment variable
CSIGSCOPE_STORE_PASSWORD; the embedded engine accepts any.

Grafana shows the alerts that Prometheus evaluates, whose rule_files have to list csigscope.rules.yaml.
The packages have this file below share/doc/csigscope/examples. With --alerts, write also makes files
with which Grafana evaluates the alerts itself.`,
		Example: "  csigscope dashboards write --out grafana --fabric fabric.yaml\n" + installation("grafana", false),
		Args:    noArgs,
	}
	f.add(cmd)
	d := grafana.DefaultOptions()
	flags := cmd.Flags()
	flags.StringVar(&dir, "out", "grafana", "`FOLDER` to write to; it is made if it does not exist")
	flags.BoolVar(&alerts, "alerts", false, "also write the alert rules, for Grafana to evaluate; if Prometheus evaluates them too, each alert comes twice")
	flags.StringVar(&f.clickhouse, "clickhouse", fmt.Sprintf("http://%s:%d", d.Store.Host, d.Store.Port), "`URL` at which Grafana's server reaches ClickHouse over HTTP")
	flags.StringVar(&f.database, "database", d.Store.Database, "`NAME` of the store's database")
	flags.StringVar(&f.user, "user", d.Store.User, "`NAME` of the store's user")
	flags.StringVar(&f.prometheus, "prometheus", d.Prometheus, "`URL` at which Grafana's server reaches Prometheus")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := f.options()
		if err != nil {
			return err
		}
		if o.Store, err = grafana.ParseStoreAddress(f.clickhouse); err != nil {
			return usageError{fmt.Errorf("--clickhouse: %w", err)}
		}
		if u, err := url.Parse(f.prometheus); err != nil || u.Host == "" {
			return usageError{fmt.Errorf("--prometheus %q: expected a URL such as %s", f.prometheus, d.Prometheus)}
		}
		o.Store.Database, o.Store.User, o.Prometheus, o.Alerts = f.database, f.user, f.prometheus, alerts
		written, err := grafana.Write(dir, o)
		for _, path := range written {
			fmt.Fprintln(cmd.OutOrStdout(), path)
		}
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "\nnext, on Grafana's machine:\n%s\n", installation(dir, o.Tables))
		}
		return err
	}
	return cmd
}

// installation returns the commands that install a written folder on Grafana's machine, without
// the panel plugin if matrices are tables.
func installation(dir string, tables bool) string {
	lines := []string{
		"sudo cp -r " + dir + "/provisioning/. /etc/grafana/provisioning/",
		"sudo install -D -m 644 -t /var/lib/grafana/dashboards/csigscope " + dir + "/dashboards/*",
	}
	if !tables {
		lines = append(lines,
			"sudo cp -r "+dir+"/plugins/. /var/lib/grafana/plugins/",
			"cat "+dir+"/grafana.env | sudo tee -a /etc/default/grafana-server")
	}
	lines = append(lines, "sudo grafana cli plugins install grafana-clickhouse-datasource", "sudo systemctl restart grafana-server")
	return "  " + strings.Join(lines, "\n  ")
}

func newDashboardsPushCommand() *cobra.Command {
	var f dashboardFlags
	var address, tokenFile string
	var force, plain bool
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Put dashboards into a running Grafana",
		Long: `push writes the dashboards over Grafana's HTTP API into the folder csigscope, which it
makes. It needs a service account token with the role Editor. Matrices are tables where Grafana
has not loaded the panel plugin that write makes. Without --force, push leaves alone a
dashboard that somebody saved in Grafana since the last push; it never replaces one that is
provisioned from a file. Choose the data sources in the dashboards themselves.`,
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
		u, err := grafana.ParseURL(address)
		switch {
		case err != nil:
			return usageError{fmt.Errorf("--url: %w", err)}
		case edge.InClear(u) && !plain:
			return usageError{fmt.Errorf("--url %s: the token would travel without TLS: use https, or allow it with --insecure-token", address)}
		}
		if tokenFile == "" {
			return usageError{errors.New("--token-file is missing: expected a file with the token of a service account")}
		}
		token, err := edge.ReadToken(tokenFile)
		if err != nil {
			return usageError{err}
		}
		o, err := f.options()
		if err != nil {
			return err
		}
		p := grafana.Pusher{URL: address, Token: token, Force: force}
		if !o.Tables {
			loaded, err := p.HasPlugin(cmd.Context(), grafana.MatrixPanelID)
			if err != nil {
				return err
			}
			if o.Tables = !loaded; o.Tables {
				fmt.Fprintf(cmd.ErrOrStderr(), "Grafana has not loaded the plugin %s, so matrices are tables; csigscope dashboards write makes it\n", grafana.MatrixPanelID)
			}
		}
		all, err := grafana.Dashboards(o)
		if err != nil {
			return err
		}
		done, err := p.Push(cmd.Context(), all)
		for _, d := range done {
			fmt.Fprintf(cmd.OutOrStdout(), "%s, version %d: %s\n", d.Title, d.Version, d.URL)
		}
		return err
	}
	return cmd
}
