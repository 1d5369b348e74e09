package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pluginName is the name in PATH of the program that carries a connection's stream.
const pluginName = "session-manager-plugin"

// responseVariable passes the secret response of StartSession to plugins newer than
// lastOfArguments: the arguments of a process are readable by everyone on its machine. Older
// plugins take it as an argument.
const responseVariable = "AWS_SSM_START_SESSION_RESPONSE"

var lastOfArguments = []int{1, 2, 497, 0}

// ErrNoPlugin is returned when the plugin is not installed.
var ErrNoPlugin = errors.New("the Session Manager plugin is not installed")

// Plugin is the Session Manager plugin of this machine.
type Plugin struct {
	Path, Version string
}

// FindPlugin finds the plugin in PATH and its version, or returns [ErrNoPlugin].
func FindPlugin(ctx context.Context) (Plugin, error) {
	path, err := exec.LookPath(pluginName)
	if err != nil {
		return Plugin{}, ErrNoPlugin
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := exec.CommandContext(limited, path, "--version")
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		return Plugin{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return Plugin{path, strings.TrimSpace(string(out))}, nil
}

// byEnvironment reports whether the plugin reads the response from the environment. One with an
// unreadable version counts as new.
func (p Plugin) byEnvironment() bool {
	var version []int
	for _, part := range strings.Split(p.Version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return true
		}
		version = append(version, n)
	}
	return slices.Compare(version, lastOfArguments) > 0
}

// command returns the plugin's command for a connection. Its arguments are the response of
// StartSession or the name of its variable, the region, the operation, the profile, the request and
// the endpoint.
func (p Plugin) command(ctx context.Context, o *Opened, environ []string) *exec.Cmd {
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, responseVariable)
	})
	answer := string(o.response)
	if p.byEnvironment() {
		environ = append(environ, responseVariable+"="+answer)
		answer = responseVariable
	}
	c := exec.CommandContext(ctx, p.Path, answer, o.Region, "StartSession", o.profile, string(o.request),
		o.endpoint)
	c.Env = environ
	return c
}

// InstallPlugin returns the command that installs the plugin on this machine.
func InstallPlugin() string {
	has := func(file string) bool { _, err := os.Stat(file); return err == nil }
	return installPlugin(runtime.GOOS, runtime.GOARCH, has("/etc/debian_version"))
}

// installPlugin returns the command for a system ("Install the Session Manager plugin", AWS Systems
// Manager User Guide).
func installPlugin(system, arch string, debian bool) string {
	const from = "https://s3.amazonaws.com/session-manager-downloads/plugin/latest/"
	arch = cmp.Or(map[string]string{"arm64": "arm64"}[arch], "64bit")
	switch {
	case system == "darwin":
		return "brew install --cask session-manager-plugin"
	case system == "windows":
		return "winget install Amazon.SessionManagerPlugin"
	case debian:
		return "curl -fsSO " + from + "ubuntu_" + arch +
			"/session-manager-plugin.deb && sudo dpkg -i session-manager-plugin.deb"
	}
	return "sudo dnf install -y " + from + "linux_" + arch + "/session-manager-plugin.rpm"
}
