package cli

import (
	"slices"
	"strings"
)

// eachCloud runs a command for each cloud of the configuration, or for the one that its flags name.
// It continues after an error and returns the first one. Only tables can be of several clouds, because
// a document is of one.
func (a *app) eachCloud(f *sourceFlags, command string, named bool, run func() error) error {
	if named {
		return run()
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if len(cfg.Clouds) == 0 {
		return run()
	}
	if len(cfg.Clouds) > 1 && a.format != "table" {
		return usageError("%s -o %s: give --cloud %s: a document is of one cloud", command, a.format,
			strings.Join(cfg.Clouds, ", or --cloud "))
	}
	if len(cfg.Clouds) > 1 && slices.Contains(f.Usage, "-") {
		return usageError("%s --usage -: give --cloud %s: a pipe can be read once", command,
			strings.Join(cfg.Clouds, ", or --cloud "))
	}
	for i, name := range cfg.Clouds {
		f.Cloud = name
		if i > 0 {
			writeText(a.Stdout, "\n")
		}
		if failed := run(); err == nil {
			err = failed
		}
	}
	return err
}
