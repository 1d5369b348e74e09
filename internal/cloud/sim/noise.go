package sim

// key is the root of a resource's randomness. Everything random about a resource
// is a pure function of its key, so that an account can be asked about any moment,
// in any order, and always answers the same.
type key uint64

// newKey derives the key of a named resource from the account's seed: FNV-1a over
// the name, mixed with the seed.
func newKey(seed uint64, name string) key {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return key(mix(h ^ mix(seed)))
}

// mix is the finalizer of SplitMix64, which spreads every bit over the word.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// uniform returns the n-th number of a stream, in [0, 1).
func (k key) uniform(stream uint64, n int64) float64 {
	return float64(mix(uint64(k)^mix(stream)^mix(uint64(n)*0x9e3779b97f4a7c15))>>11) / (1 << 53)
}

// between returns the n-th number of a stream, in [lo, hi).
func (k key) between(stream uint64, n int64, lo, hi float64) float64 {
	return lo + (hi-lo)*k.uniform(stream, n)
}

// hex returns n lower-case hexadecimal digits, at most 32.
func (k key) hex(n int) string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 32)
	for word := range uint64(2) {
		x := mix(uint64(k) + word)
		for range 16 {
			out = append(out, digits[x&15])
			x >>= 4
		}
	}
	return string(out[:n])
}
