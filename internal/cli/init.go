package cli

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/examples/policies"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
)

// beginning is what `curfew init` asks.
type beginning struct {
	tags, govern, instanceStore, notify, observe string
	force                                        bool
}

// questions are asked where no flag answers them.
func (b *beginning) questions() []question {
	return []question{
		{&b.tags, "tags", "Which tags name the team and the owner?", "team,owner"},
		{&b.govern, "govern", "Which machines may policies act on (lifetime=ephemeral,team=vision; or none)?", "lifetime=ephemeral"},
		{&b.instanceStore, "instance-store", "May what is on their instance-store disks be lost (scratch), or not (keep)?", "keep"},
		{&b.notify, "notify", "Who is told (#channel of Slack, ADDRESS SMTP-HOST:PORT, or https://webhook)?", ""},
		{&b.observe, "observe", "Observe first, and act on nothing (yes or no)?", "yes"},
	}
}

type question struct {
	answer            *string
	flag, text, usual string
}

func (a *app) newInit(use string) *cobra.Command {
	var b beginning
	c := &cobra.Command{
		Use:   use,
		Short: "Write a curfew.yaml and policies that fit you, from five questions",
		Long: `Asks five questions and writes curfew.yaml and a directory policies/ with the ready
policies. A flag answers its question beforehand. An empty answer takes the default in
brackets. Nothing that exists is overwritten without --force.`,
		Example: `  curfew init
  curfew init --tags squad,created-by --govern lifetime=ephemeral --instance-store scratch --notify "#ml-cost" --observe yes`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.begin(b, c.InOrStdin()) },
	}
	for _, q := range b.questions() {
		c.Flags().StringVar(q.answer, q.flag, "", strings.TrimSuffix(q.text, "?"))
	}
	c.Flags().BoolVar(&b.force, "force", false, "overwrite files that exist")
	return c
}

// begin asks, and writes the files once everything in them is valid.
func (a *app) begin(b beginning, in io.Reader) error {
	lines := bufio.NewScanner(in)
	for _, q := range b.questions() {
		for *q.answer == "" {
			plain.Fprintf(a.Stderr, "%s [%s] ", q.text, q.usual)
			said := lines.Scan()
			*q.answer = first(strings.TrimSpace(lines.Text()), q.usual)
			if *q.answer == "" && !said {
				return usageError("curfew init: --%s has no default; give it, or answer the question", q.flag)
			}
		}
	}
	cfg, err := b.config()
	if err != nil {
		return usageError("curfew init: %w", err)
	}
	files := map[string]string{config.FileName: cfg}
	check := config.Default()
	if err := config.Decode(config.FileName, []byte(cfg), &check); err != nil {
		return usageError("curfew init: the answers make no valid configuration: %w", err)
	}
	names, err := fs.Glob(policies.Files, "*.yaml")
	if err != nil {
		return fmt.Errorf("list the ready policies: %w", err)
	}
	for _, name := range names {
		text, err := b.policies(name)
		if err != nil {
			return err
		}
		files[filepath.Join("policies", name)] = text
	}
	written := make([]string, 0, len(files))
	for name := range files {
		if _, err := os.Lstat(a.path(name)); err == nil && !b.force {
			return usageError("curfew init: %s exists; --force overwrites it", name)
		}
		written = append(written, name)
	}
	slices.Sort(written)
	if err := os.MkdirAll(a.path("policies"), 0o755); err != nil { //nolint:gosec // others may read policies
		return fmt.Errorf("write the policies: %w", daemon.Cause(err))
	}
	for _, name := range written {
		err := daemon.ReplaceFile(a.path(name), func(w io.Writer) error { _, err := io.WriteString(w, files[name]); return err })
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	_, err = plain.Fprintf(a.Stdout, "Wrote %s and %d policies in policies/ (mode %s).\nNext: curfew policy check, then curfew enforce --once\n",
		config.FileName, len(names), b.mode())
	return err
}

func (b *beginning) mode() string {
	if strings.HasPrefix(strings.ToLower(b.observe), "n") {
		return string(policy.Enforce)
	}
	return "observe"
}

func (b *beginning) scratch() (bool, error) {
	switch strings.ToLower(b.instanceStore) {
	case "scratch", "y", "yes":
		return true, nil
	case "keep", "n", "no":
		return false, nil
	}
	return false, fmt.Errorf("--instance-store %q: it is scratch or keep", b.instanceStore)
}

// config is the text of curfew.yaml.
func (b *beginning) config() (string, error) {
	var out strings.Builder
	out.WriteString("# Written by curfew init. docs/configuration.md lists every key.\npolicies: [policies]\n")
	team, owner, _ := strings.Cut(b.tags, ",")
	d := inventory.DefaultTagMapping()
	out.WriteString("\n# Which tags say whose a resource is; the first that has a value wins.\ntags:\n  team: " + tagKeys(team, d.Team) +
		"\n  user: " + tagKeys(owner, d.User) + "\n")
	entry, err := b.governance()
	if err != nil {
		return "", err
	}
	if entry != "" {
		out.WriteString("\n# What policies may act on, besides machines that carry curfew:managed=true.\ngovernance:\n  - " + entry + "\n")
	}
	told, err := b.told()
	if err != nil {
		return "", err
	}
	out.WriteString("\n# How people are reached: docs/notifications.md.\nnotify:\n" + told)
	return out.String(), nil
}

// tagKeys puts a key before those that are usual.
func tagKeys(key string, usual []string) string {
	keys := []string{}
	for _, k := range append([]string{strings.TrimSpace(key)}, usual...) {
		if k != "" && !slices.Contains(keys, strconv.Quote(k)) {
			keys = append(keys, strconv.Quote(k))
		}
	}
	return "[" + strings.Join(keys, ", ") + "]"
}

// selectKeys are the keys of an entry of governance that take plain values.
var selectKeys = []string{"cloud", "account", "region", "kind", "type", "lifetime", "purpose", "team", "project", "user", "environment"}

// governance is the entry of the machines that policies may act on; empty for none.
func (b *beginning) governance() (string, error) {
	scratch, err := b.scratch()
	if err != nil || b.govern == "none" {
		return "", err
	}
	var pairs, tags []string
	for pair := range strings.SplitSeq(b.govern, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case !ok || key == "" || value == "":
			return "", fmt.Errorf("--govern %q: it is pairs such as lifetime=ephemeral, or none", b.govern)
		case slices.Contains(selectKeys, key):
			pairs = append(pairs, key+": "+strconv.Quote(value))
		default:
			tags = append(tags, strconv.Quote(key)+": "+strconv.Quote(value))
		}
	}
	if len(tags) > 0 {
		pairs = append(pairs, "tags: {"+strings.Join(tags, ", ")+"}")
	}
	if scratch {
		pairs = append(pairs, "instance_store: scratch")
	}
	return "{" + strings.Join(pairs, ", ") + "}", nil
}

// mailTo is an address and the server that takes mail for it.
var mailTo = regexp.MustCompile(`^(\S+@\S+)\s+(\S+:\d+)$`)

// told is the section notify.
func (b *beginning) told() (string, error) {
	var channel, address string
	mail := mailTo.FindStringSubmatch(b.notify)
	switch {
	case strings.HasPrefix(b.notify, "#"):
		channel = fmt.Sprintf("slack: {token_env: CURFEW_SLACK_TOKEN, default_channel: %s, default_owns: true}", strconv.Quote(b.notify))
		address = "slack:" + b.notify
	case mail != nil:
		channel = fmt.Sprintf("mail: {smtp: %s, from: %s}", strconv.Quote(mail[2]), strconv.Quote(mail[1]))
		address = "mail:" + mail[1]
	case strings.HasPrefix(b.notify, "https://") || strings.HasPrefix(b.notify, "http://"):
		channel, address = fmt.Sprintf("webhook: {url: %s, secret_env: CURFEW_HOOK_SECRET}", strconv.Quote(b.notify)), "webhook"
	default:
		return "", fmt.Errorf("--notify %q: it is a #channel of Slack, an address with the host and port of its mail server, or the URL of a webhook", b.notify)
	}
	return fmt.Sprintf("  %s\n  names:\n    platform: [%s]\n    finops: [%[2]s]\n", channel, strconv.Quote(address)), nil
}

// recipients are the people that a ready policy warns, in its text.
var recipients = regexp.MustCompile(`notify: (?:owner|\[([a-z, ]+)\])([,}])`)

// policyNames are the lines with which policies begin.
var policyNames = regexp.MustCompile(`(?m)^  - name: .*$`)

// policies is the text of one file of ready policies, as answered.
func (b *beginning) policies(name string) (string, error) {
	src, err := policies.Files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the ready policies: %w", err)
	}
	text := recipients.ReplaceAllStringFunc(string(src), func(s string) string {
		m := recipients.FindStringSubmatch(s)
		return "notify: [" + first(m[1], "owner") + ", platform]" + m[2]
	})
	if scratch, _ := b.scratch(); !scratch {
		text = strings.ReplaceAll(text, "disks: {instance_store: scratch, root: snapshot}", "disks: {root: snapshot}")
	}
	text = policyNames.ReplaceAllString(text, "$0\n    mode: "+b.mode())
	if _, err := policy.Parse(name, []byte(text)); err != nil {
		return "", fmt.Errorf("write the ready policies: %w", err)
	}
	return text, nil
}
