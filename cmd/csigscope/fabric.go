package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/fabric/importer"
	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/decode/csig"
)

func newFabricCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fabric",
		Short: "Make, check and show fabric files",
		Long: `A fabric file (--fabric of other commands) names switches, ports, hosts and groups, and says what
the bits of locator metadata hold. import makes one from files that you have, check lists mistakes,
gaps and oddities, and show prints it as a tree.`,
	}
	cmd.AddCommand(newFabricImport(), newFabricCheck(), newFabricShow())
	return cmd
}

func newFabricImport() *cobra.Command {
	var out outputFile
	var speed string
	cmd := &cobra.Command{
		Use:   "import PATH...",
		Short: "Make a fabric file from SONiC, LLDP, NetBox or containerlab files",
		Long: `import reads files, and those in folders that end in .json, .yml or .yaml, and prints one
fabric file. It recognizes each file by its content:

  config_db.json of SONiC     one per switch: its ports, LAGs, VLANs, addresses, neighbours
  lldpctl -f json (or json0)  one per device, named after it: leaf1.json, leaf1/lldp.json
  NetBox                      pages of its API: dcim/devices, dcim/interfaces, dcim/cables,
                              ipam/ip-addresses
  containerlab                a topology (*.clab.yml)

Files may describe the same devices: their statements are merged, and a link that both ends state
is one. Where two files differ, a warning names both: LLDP has precedence over cables and plans,
and these over neighbours in config_db.json. A contradiction between statements of equal rank is an
error. Stages and orientations follow from roles, names and links, racks from the prefixes that
switches route to hosts, pods from the links.

import lists missing facts on standard error and at the head of the fabric file; comments beside
devices and ports say where to add them. You always have to add the locator layout, since it is
a setting of the switches. The exit code is 3 if other commands refuse the fabric file as it is.`,
		Example: `  csigscope fabric import configs/ --out fabric.yaml            # a folder of config_db.json
  csigscope fabric import configs/ lldp/ netbox/*.json --out fabric.yaml
  csigscope fabric import lab.clab.yml --speed 100Gbps
  csigscope fabric check fabric.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("import: no file or folder given (see %s --help)", cmd.CommandPath())}
			}
			return nil
		},
	}
	out.add(cmd, "out", "`FILE` to write, - for standard output (the default)")
	cmd.Flags().StringVar(&speed, "speed", "", "`RATE` of ports whose speed no file states, such as 100Gbps (default: it is missing)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var o importer.Options
		if speed != "" {
			var err error
			if o.Speed, err = csig.ParseQuantity(csig.BitPerSecond, speed); err != nil {
				return usageError{fmt.Errorf("--speed: %w", err)}
			}
		}
		return importFabric(cmd, args, o, &out)
	}
	return cmd
}

// importFabric writes the fabric file for the given files, and lists missing statements on
// standard error.
func importFabric(cmd *cobra.Command, paths []string, o importer.Options, out *outputFile) error {
	r, err := interruptible(cmd, func() (*importer.Result, error) {
		files, err := importer.Read(paths)
		if err != nil {
			return orUsage[*importer.Result](nil, err)
		}
		return orUsage(importer.Import(files, o))
	})
	if err != nil {
		return err
	}
	if err := out.write(cmd, r.Write); err != nil {
		return err
	}
	printReview(cmd, r.Missing, r.Warnings)
	if r.Incomplete != nil {
		return findingsError{fmt.Errorf("the fabric file is not complete: add the missing facts, then run csigscope fabric check: %w", r.Incomplete)}
	}
	return nil
}

// interruptible returns the result of work that does not look at a context, or an error as soon as
// the command is interrupted. The work then goes on until the process ends, so it must only read.
func interruptible[T any](cmd *cobra.Command, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-cmd.Context().Done():
		var none T
		return none, cmd.Context().Err()
	}
}

// printReview prints the gaps and oddities of a fabric.
func printReview(cmd *cobra.Command, missing, warnings []string) {
	for _, line := range missing {
		fmt.Fprintln(cmd.ErrOrStderr(), "missing:", line)
	}
	for _, line := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", line)
	}
}

func newFabricCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a fabric file",
		Long: `check reports the mistakes for which other commands refuse a fabric file, with their lines; the
exit code is then 2. On standard error it also prints which facts are missing that answers need,
and oddities that are allowed but look like a mistake, such as a link whose ends have different
speeds. config check --fabric checks the same.`,
		Example: "  csigscope fabric check fabric.yaml",
		Args:    oneArg("fabric FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var missing, suspicious []string
			o, err := interruptible(cmd, func() (*fabric.Outline, error) {
				n, err := openNetwork("", args[0])
				if err != nil {
					return nil, err
				}
				missing, suspicious = n.Fabric.Review()
				return n.Fabric.Outline(""), nil
			})
			if err != nil {
				return err
			}
			printReview(cmd, missing, suspicious)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "fabric is valid: %d hosts, %d groups, %d missing, %d warnings\n", o.Hosts, o.Groups, len(missing), len(suspicious))
			return err
		},
	}
}

func newFabricShow() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print a fabric file as a tree, with link counts and oversubscription",
		Long: `show prints the pods, stages, devices and ports of a fabric file, then the number of links and
the oversubscription of each stage: the total speed of its ports that face down, divided by the
total speed of its ports that face up. json has all of it, ndjson and csv one row per port.`,
		Example: `  csigscope fabric show fabric.yaml
  csigscope fabric show fabric.yaml -o csv`,
		Args: oneArg("fabric FILE"),
	}
	out.add(cmd, "table", "json", "ndjson", "csv")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := interruptible(cmd, func() (*fabric.Outline, error) {
			spec, err := orUsage(fabric.Load(args[0]))
			if err != nil {
				return nil, err
			}
			n, err := newNetwork("", spec, args[0])
			if err != nil {
				return nil, err
			}
			return n.Fabric.Outline(spec.Name), nil
		})
		if err != nil {
			return err
		}
		if out.format == "ndjson" || out.format == "csv" {
			return out.list(cmd, portListing(o))
		}
		return out.json(cmd, o, func(w io.Writer) error { return o.WriteText(w) })
	}
	return cmd
}

// portListing returns a row for each port.
func portListing(o *fabric.Outline) *tabular.Listing {
	l := &tabular.Listing{Columns: []string{"pod", "stage", "device", "port", "orientation", "speed_bps", "peer", "peer_kind"}}
	for i := range o.Pods {
		for k := range o.Pods[i].Devices {
			d := &o.Pods[i].Devices[k]
			for _, p := range d.Ports {
				l.Rows = append(l.Rows, []any{answers.OrNil(o.Pods[i].Name), d.Stage, d.Name, p.Name, p.Orientation, p.Speed, answers.OrNil(p.Peer), answers.OrNil(p.PeerKind)})
			}
		}
	}
	return l
}
