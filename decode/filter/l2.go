package filter

// etherHeaders is the number of L2 headers that are followed: four VLAN tags, a SecTAG and the
// packet's EtherType.
const etherHeaders = 6

// EtherTypes of headers that are followed.
const (
	etherIPv4    = 0x0800
	etherIPv6    = 0x86dd
	etherSecTAG  = 0x88e5
	etherMPLS    = 0x8847
	etherMPLSUp  = 0x8848
	etherFrame   = 0x6558
	etherERSPAN2 = 0x88be
	etherERSPAN3 = 0x22eb
)

var etherVLANs = []uint32{0x8100, 0x88a8, 0x9100}

// ether writes the steps over the EtherTypes of one frame.
func (w *writer) ether(at *headerLabels, labelled label) {
	ipv4, ipv6, mpls := w.newLabel(), w.newLabel(), w.newLabel()
	steps := append([]label{at.ether}, w.newLabels(etherHeaders-1)...)
	for i, step := range steps {
		next := w.pass
		if i+1 < len(steps) {
			next = steps[i+1]
		}
		w.bind(step)
		w.load(0, 2)
		if i == 0 {
			w.bind(at.typed)
		}
		w.anyOf(w.tpids, w.pass)
		w.equal(etherIPv4, ipv4)
		w.equal(etherIPv6, ipv6)
		vlan, secTAG := w.newLabel(), w.newLabel()
		w.anyOf(etherVLANs, vlan)
		w.equal(etherSecTAG, secTAG)
		w.equal(etherMPLS, mpls)
		w.equal(etherMPLSUp, mpls)
		w.jump(w.drop)
		w.bind(vlan)
		w.advance(4)
		w.jump(next)
		w.bind(secTAG)
		w.secTAG(next)
	}
	w.bind(mpls)
	w.advance(2)
	w.jump(labelled)
	w.bind(ipv4)
	w.advance(2)
	w.jump(at.ipv4)
	w.bind(ipv6)
	w.advance(2)
	w.jump(at.ipv6)
}

// secTAG steps over a SecTAG (IEEE 802.1AE). It passes encrypted frames: they may hide a tag.
func (w *writer) secTAG(next label) {
	const version, modified, hasSCI = 0x80, 0x0c, 0x20
	withSCI := w.newLabel()
	w.load(2, 1)
	w.bits(version, w.drop)
	w.bits(modified, w.pass)
	w.bits(hasSCI, withSCI)
	w.advance(2 + 6)
	w.jump(next)
	w.bind(withSCI)
	w.advance(2 + 14)
	w.jump(next)
}

// mpls steps over labels, X at the first, and chooses the next header by its first bits.
func (w *writer) mpls(at, inside *headerLabels) {
	const labels, bottomOfStack, laterFragment = 8, 0x100, 0x80
	bottom, pseudowire := w.newLabel(), w.newLabel()
	for range labels {
		w.load(0, 4)
		w.bits(bottomOfStack, bottom)
		w.advance(4)
	}
	w.jump(w.pass)
	w.bind(bottom)
	w.advance(4)
	w.firstBits(at)
	w.equal(0, pseudowire)
	w.jump(w.drop)
	w.bind(pseudowire)
	w.load(1, 1)
	w.bits(laterFragment, w.drop)
	w.advance(4 + 12)
	w.jump(inside.ether)
}

// firstBits goes to the IP version of the packet at X by its first four bits, and leaves them in A.
func (w *writer) firstBits(to *headerLabels) {
	w.load(0, 1)
	w.alu(shiftRight, 4)
	w.equal(4, to.ipv4)
	w.equal(6, to.ipv6)
}
