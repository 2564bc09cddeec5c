package capture

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// InterfacePackets returns the number of packets that each network interface has received and sent since it
// was created, whatever a tap's filter passes, from the kernel's link statistics (struct
// rtnl_link_stats64). It is safe for concurrent use.
func InterfacePackets() (map[string]uint64, error) {
	table, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("count packets of interfaces: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, fmt.Errorf("count packets of interfaces: %w", err)
	}
	passed := make(map[string]uint64)
	for i := range messages {
		if messages[i].Header.Type != unix.RTM_NEWLINK {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&messages[i])
		if err != nil {
			return nil, fmt.Errorf("count packets of interfaces: %w", err)
		}
		var name string
		var packets uint64
		for _, a := range attributes {
			switch {
			case a.Attr.Type == unix.IFLA_IFNAME:
				name = unix.ByteSliceToString(a.Value)
			case a.Attr.Type == unix.IFLA_STATS64 && len(a.Value) >= 16: // rx_packets, tx_packets
				packets = binary.NativeEndian.Uint64(a.Value) + binary.NativeEndian.Uint64(a.Value[8:])
			}
		}
		passed[name] = packets
	}
	return passed, nil
}
