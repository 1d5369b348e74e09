package config

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/examples/policies"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Start holds the answers from which `curfew init` writes a first configuration.
type Start struct {
	Tags, Govern, InstanceStore, Notify, Observe, Clouds string
	// All writes every ready policy, not only those of startPolicies.
	All bool
}

// startPolicies are the files of ready policies that need answers: what may be acted on, what its
// disks contain, which tags name owners, and where messages go.
var startPolicies = []string{"idle-ephemeral.yaml", "dead-mans-switch.yaml", "untagged.yaml", "runaway.yaml"}

// Question is one of the questions of [Start.Questions].
type Question struct {
	// Answer points to the answer, which is empty until it is known.
	Answer *string
	// Flag names the answer, Text asks for it, and Usual is the default or empty.
	Flag, Text, Usual string
}

// Questions returns the questions in the order in which they are asked.
func (b *Start) Questions() []Question {
	return []Question{
		{&b.Tags, "tags", "Which tags name the team and the owner?", "team,owner"},
		{
			&b.Govern, "govern", "Which machines may policies act on (lifetime=ephemeral,team=vision; or none)?",
			"lifetime=ephemeral",
		},
		{
			&b.InstanceStore, "instance-store",
			"May data on their instance-store disks be lost (scratch), or not (keep)?",
			"keep",
		},
		{
			&b.Notify, "notify",
			"Where do warnings go (#channel of Slack, ADDRESS SMTP-HOST:PORT, or https://webhook)?", "",
		},
		{&b.Observe, "observe", "Observe first, and act on nothing (yes or no)?", "yes"},
		{
			&b.Clouds, "clouds",
			"Which clouds does it read (aws, local for sessions on this machine, onprem for machines that you list)?",
			"aws",
		},
	}
}

// Files returns the texts of curfew.yaml and of the needed policies by path. All of them are valid.
func (b *Start) Files() (map[string]string, error) {
	cfg, err := b.config()
	if err != nil {
		return nil, err
	}
	files, check := map[string]string{FileName: cfg}, Default()
	if err := Decode(FileName, []byte(cfg), &check); err != nil {
		return nil, fmt.Errorf("the answers make no valid configuration: %w", err)
	}
	names := startPolicies
	if b.All {
		if names, err = fs.Glob(policies.Files, "*.yaml"); err != nil {
			return nil, fmt.Errorf("list the ready policies: %w", err)
		}
	}
	for _, name := range names {
		text, err := b.policies(name)
		if err != nil {
			return nil, err
		}
		files[filepath.Join("policies", name)] = text
	}
	return files, nil
}

// Mode returns the mode of the written policies.
func (b *Start) Mode() string {
	if strings.HasPrefix(strings.ToLower(b.Observe), "n") {
		return string(policy.Enforce)
	}
	return "observe"
}

func (b *Start) scratch() (bool, error) {
	switch strings.ToLower(b.InstanceStore) {
	case "scratch", "y", "yes":
		return true, nil
	case "keep", "n", "no":
		return false, nil
	}
	return false, fmt.Errorf("--instance-store %q: it is scratch or keep", b.InstanceStore)
}

// config returns the text of curfew.yaml.
func (b *Start) config() (string, error) {
	var out strings.Builder
	out.WriteString(document.SchemaLine("config.v1.json") +
		"# Written by curfew init. docs/reference/configuration.md lists every key.\npolicies: [policies]\n")
	read, err := b.clouds()
	if err != nil {
		return "", err
	}
	out.WriteString(read)
	team, owner, _ := strings.Cut(b.Tags, ",")
	d := inventory.DefaultTagMapping()
	out.WriteString("\n# Which tags say whose a resource is; the first that has a value wins.\ntags:\n  team: " +
		tagKeys(team, d.Team) +
		"\n  user: " + tagKeys(owner, d.User) + "\n")
	entry, err := b.governance()
	if err != nil {
		return "", err
	}
	if entry != "" {
		out.WriteString(
			"\n# What policies may act on, besides machines that carry curfew:managed=true.\ngovernance:\n  - " +
				entry + "\n")
	}
	told, err := b.notify()
	if err != nil {
		return "", err
	}
	out.WriteString("\n# How people are reached: docs/notifications.md.\nnotify:\n" + told)
	return out.String(), nil
}

// onPremises shows how to list machines, in a comment, because an invented machine would have false
// costs.
const onPremises = `
# The machines that you own. List them, and add onprem to clouds: docs/lab.md.
# machines:
#   - {name: gpu-1, gpu: H100-80GB, gpus: 8, vcpus: 224, memory_gib: 2048, tags: {team: vision}}
# rates:
#   gpu_hour: {H100-80GB: 2.10}
#   source: finance, four years of depreciation and power
#   as_of: 2026-01-01
`

// clouds returns the list of clouds to read.
func (b *Start) clouds() (string, error) {
	var names []string
	listed := ""
	for name := range strings.SplitSeq(b.Clouds, ",") {
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case slices.Contains(names, name):
		case name == "aws" || name == local.CloudName:
			names = append(names, name)
		case name == local.OnPremises:
			listed = onPremises
		default:
			return "", fmt.Errorf("--clouds %q: it is aws, local, onprem, or several of them: local,onprem", b.Clouds)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("--clouds %q: add local or aws; onprem follows once its machines are listed", b.Clouds)
	}
	return "\n# The clouds that scan, enforce and serve read.\nclouds: [" + strings.Join(names, ", ") + "]\n" + listed, nil
}

// tagKeys puts a key before the default ones.
func tagKeys(key string, usual []string) string {
	keys := []string{}
	for _, k := range append([]string{strings.TrimSpace(key)}, usual...) {
		if k != "" && !slices.Contains(keys, strconv.Quote(k)) {
			keys = append(keys, strconv.Quote(k))
		}
	}
	return "[" + strings.Join(keys, ", ") + "]"
}

// selectKeys are the keys of a governance entry with plain values.
var selectKeys = []string{
	"cloud", "account", "region", "kind", "type", "lifetime", "purpose", "team", "project", "user", "environment",
}

// governance returns the entry for the machines that policies may act on; empty if there are none.
func (b *Start) governance() (string, error) {
	scratch, err := b.scratch()
	if err != nil || b.Govern == "none" {
		return "", err
	}
	var pairs, tags []string
	for pair := range strings.SplitSeq(b.Govern, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case !ok || key == "" || value == "":
			return "", fmt.Errorf("--govern %q: it is pairs such as lifetime=ephemeral, or none", b.Govern)
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

// mailTo matches an address and the server that accepts mail for it.
var mailTo = lazyregexp.New(`^(\S+@\S+)\s+(\S+:\d+)$`)

// notify returns the notify section.
func (b *Start) notify() (string, error) {
	var channel, address string
	mail := mailTo.FindStringSubmatch(b.Notify)
	switch {
	case strings.HasPrefix(b.Notify, "#"):
		channel = fmt.Sprintf("slack: {token_env: CURFEW_SLACK_TOKEN, default_channel: %s}", strconv.Quote(b.Notify))
		address = "slack:" + b.Notify
	case mail != nil:
		channel = fmt.Sprintf("mail: {smtp: %s, from: %s}", strconv.Quote(mail[2]), strconv.Quote(mail[1]))
		address = "mail:" + mail[1]
	case strings.HasPrefix(b.Notify, "https://") || strings.HasPrefix(b.Notify, "http://"):
		channel, address = fmt.Sprintf("webhook: {url: %s, secret_env: CURFEW_HOOK_SECRET}",
			strconv.Quote(b.Notify)), "webhook"
	default:
		return "", fmt.Errorf("--notify %q: it is a #channel of Slack, an address with the host and port of its mail "+
			"server, or the URL of a webhook", b.Notify)
	}
	return fmt.Sprintf(
		"  %s\n  names:\n    platform: [%s]\n    finops: [%[2]s]\n  # Who answers for a resource whose "+
			"owner no other rule reaches.\n  unowned: [%[2]s]\n", channel, strconv.Quote(address)), nil
}

// policyNames matches the first lines of policies.
var policyNames = lazyregexp.New(`(?m)^  - name: .*$`)

// policies returns the text of one file of ready policies with the answers.
func (b *Start) policies(name string) (string, error) {
	src, err := policies.Files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the ready policies: %w", err)
	}
	text := string(src)
	if scratch, _ := b.scratch(); !scratch {
		text = strings.ReplaceAll(text, "disks: {instance_store: scratch, root: snapshot}", "disks: {root: snapshot}")
	}
	// Owners are read from the tags in the answers, which curfew.yaml maps.
	text = strings.ReplaceAll(text, "!has(resource.tags.team) && !has(resource.tags.Team)", "!has(resource.team)")
	text = policyNames.ReplaceAllString(text, "$0\n    mode: "+b.Mode())
	if _, err := policy.Parse(name, []byte(text)); err != nil {
		return "", fmt.Errorf("write the ready policies: %w", err)
	}
	return text, nil
}
