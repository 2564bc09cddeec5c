package aggregate

// clear empties the block's columns and keeps their memory.
func (b *Block) clear() {
	b.Signal, b.Kind, b.Encoding = b.Signal[:0], b.Kind[:0], b.Encoding[:0]
	b.SrcGroup, b.DstGroup, b.Location = b.SrcGroup[:0], b.DstGroup[:0], b.Location[:0]
	b.Observations, b.Bytes = b.Observations[:0], b.Bytes[:0]
	b.Sum, b.Min, b.Max = b.Sum[:0], b.Min[:0], b.Max[:0]
	b.Untouched, b.Trimmed = b.Untouched[:0], b.Trimmed[:0]
	b.Heavy, b.HeavySum = b.Heavy[:0], b.HeavySum[:0]
	b.DistCode, b.DistCount, b.DistEnd = b.DistCode[:0], b.DistCount[:0], b.DistEnd[:0]
	b.Flows = b.Flows[:0]
}

func (b *Block) appendSums(r *row) {
	b.Observations = append(b.Observations, r.observations)
	b.Bytes = append(b.Bytes, r.bytes)
	b.Sum = append(b.Sum, r.sum)
	b.Min = append(b.Min, r.min)
	b.Max = append(b.Max, r.max)
	b.Untouched = append(b.Untouched, r.untouched)
	b.Trimmed = append(b.Trimmed, r.trimmed)
	b.Heavy = append(b.Heavy, r.heavy)
	b.HeavySum = append(b.HeavySum, r.heavySum)
}

// appendDist moves the buckets [lo, hi) to the last row's distribution: they are 0
// afterwards.
func (b *Block) appendDist(buckets []uint64, lo, hi int) {
	for i := lo; i < hi; i++ {
		if n := buckets[i]; n != 0 {
			b.DistCode = append(b.DistCode, uint16(i))
			b.DistCount = append(b.DistCount, n)
			buckets[i] = 0
		}
	}
	b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
}
