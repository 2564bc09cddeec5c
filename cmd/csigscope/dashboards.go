package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/dashboards/grafana"
)

// dashboardFlags say what dashboards are made for.
type dashboardFlags struct {
	network    networkFlags
	clickhouse string
	database   string
	user       string
	prometheus string
	matrix     bool
	fine       time.Duration
}

func newDashboardsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dashboards",
		Short: "Write Grafana dashboards, or push them",
		Long: `dashboards makes Grafana's dashboards of what is stored:

  Fabric    bottlenecks over time, top locations, the state of each cell, coverage
  Cells     source by destination: mean and mode; then one cell, its path, flows, findings
  Job       one group's steps: period and idle gaps, codes over time, worst flows
  Pipeline  csigscope itself and its alerts, from Prometheus

They ask the data source plugin grafana-clickhouse-datasource over HTTP, at a ClickHouse
server or at what query serve opens with --clickhouse-listen. With --fabric every location
has the colour that it has on the page. They are made for Grafana 12 and 13: every
query is run against the store and its answer through Grafana's own code of data, types are
checked against its own, and they were never seen in a running Grafana.`,
	}
	cmd.AddCommand(newDashboardsWriteCommand(), newDashboardsPushCommand())
	return cmd
}

func (f *dashboardFlags) add(cmd *cobra.Command) {
	f.network.add(cmd.Flags())
	cmd.Flags().DurationVar(&f.fine, "fine", grafana.DefaultOptions().Fine, "length of the finest windows that are stored")
	cmd.Flags().BoolVar(&f.matrix, "matrix-panel", false, "draw matrices with the plugin esnet-matrix-panel instead of tables; its options are not checked")
}

func (f *dashboardFlags) options() (grafana.Options, error) {
	o := grafana.DefaultOptions()
	o.MatrixPanel, o.Fine = f.matrix, f.fine
	if f.fine <= 0 || f.fine >= time.Second {
		return o, usageError{fmt.Errorf("--fine %s: expected less than 1s, as replay and collect have it", f.fine)}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return o, err
	}
	if f.network.fabric != "" {
		o.Locations = n.fabric.Locations()
	}
	return o, nil
}

func newDashboardsWriteCommand() *cobra.Command {
	var f dashboardFlags
	var dir string
	var alerts bool
	cmd := &cobra.Command{
		Use:   "write",
		Short: "Write dashboards and the files that provision them",
		Long: `write makes a folder with dashboards, and with the files that provision them and their
data sources. The store's password is read by Grafana from its environment variable
CSIGSCOPE_STORE_PASSWORD; the embedded engine takes any. Alert rules are not among the
files: Prometheus evaluates those that ship with csigscope, and Grafana shows them. Where
Prometheus evaluates none, --alerts writes them for Grafana to evaluate.`,
		Example: `  csigscope dashboards write --dir grafana --fabric fabric.yaml
  cp -r grafana/provisioning/. /etc/grafana/provisioning/
  cp grafana/dashboards/* /var/lib/grafana/dashboards/csigscope/`,
		Args: noArgs,
	}
	f.add(cmd)
	d := grafana.DefaultOptions()
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "grafana", "`FOLDER` to write to")
	flags.BoolVar(&alerts, "alerts", false, "also write the alert rules, for Grafana to evaluate; where Prometheus does as well, each alert comes twice")
	flags.StringVar(&f.clickhouse, "clickhouse", fmt.Sprintf("http://%s:%d", d.Store.Host, d.Store.Port), "`URL` at which Grafana's server reaches ClickHouse over HTTP")
	flags.StringVar(&f.database, "database", d.Store.Database, "`NAME` of the store's database")
	flags.StringVar(&f.user, "user", d.Store.User, "`NAME` of the store's user")
	flags.StringVar(&f.prometheus, "prometheus", d.Prometheus, "`URL` at which Grafana's server reaches Prometheus")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := f.options()
		if err != nil {
			return err
		}
		if o.Store, err = storeAddress(f.clickhouse); err != nil {
			return usageError{err}
		}
		if u, err := url.Parse(f.prometheus); err != nil || u.Host == "" {
			return usageError{fmt.Errorf("--prometheus %q: expected a URL such as %s", f.prometheus, d.Prometheus)}
		}
		o.Store.Database, o.Store.User, o.Prometheus, o.Alerts = f.database, f.user, f.prometheus, alerts
		written, err := grafana.Write(dir, o)
		for _, path := range written {
			fmt.Fprintln(cmd.OutOrStdout(), path)
		}
		return err
	}
	return cmd
}

func storeAddress(text string) (a grafana.StoreAddress, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.User != nil {
		return a, fmt.Errorf("--clickhouse %q: expected a URL such as http://127.0.0.1:8123", text)
	}
	a.Host, a.Secure = u.Hostname(), u.Scheme == "https"
	usual := "8123"
	if a.Secure {
		usual = "8443"
	}
	if a.Port, err = strconv.Atoi(cmp.Or(u.Port(), usual)); err != nil {
		return a, fmt.Errorf("--clickhouse %q: %w", text, err)
	}
	return a, nil
}
