package config

// Load reads a file without a cache.
func Load(path string, lookup func(string) (string, bool)) (Config, error) {
	return (*Cache)(nil).Load(path, lookup)
}
