package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/config"
)

// TestCacheMatchesFile checks that the cache returns the current file and environment, unaffected
// by changes to earlier results.
func TestCacheMatchesFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "curfew.yaml")
	env := map[string]string{}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var cache config.Cache
	expect := func() config.Config {
		t.Helper()
		want, wantErr := config.Load(file, lookup)
		got, err := cache.Load(file, lookup)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("%v, want %v", err, wantErr)
		}
		if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		return got
	}
	const text = "data_dir: state\naws: {regions: [us-east-1], accounts: [{role: 'arn:aws:iam::111122223333:role/r', " +
		"regions: [eu-west-1]}]}\n" +
		"people: {ada: {roles: [admin], mail: [ada@example.com]}}\ntags: {team: [squad]}\n"
	write(text)
	expect()
	spoiled := expect()
	spoiled.AWS.Accounts[0].Regions[0], spoiled.Tags.Team[0] = "spoiled", "spoiled"
	spoiled.People["ada"].Roles[0] = "spoiled"
	delete(spoiled.People, "ada")
	spoiled.AWS.Regions = append(spoiled.AWS.Regions[:0], "spoiled")
	expect()
	env["CURFEW_DATA_DIR"] = "/elsewhere"
	if got := expect(); got.DataDir != "/elsewhere" {
		t.Errorf("the environment says %q", got.DataDir)
	}
	delete(env, "CURFEW_DATA_DIR")
	write("tags: {team: [crews]}\n") // first of another length, then of the same
	expect()
	write("tags: {team: [group]}\n")
	if got := expect(); got.Tags.Team[0] != "group" {
		t.Errorf("the file says %v", got.Tags.Team)
	}
	write("tags: {team: [group}\n")
	if _, err := cache.Load(file, lookup); err == nil {
		t.Error("a mistake is taken")
	}
	write(text)
	expect()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Load(file, lookup); err == nil {
		t.Error("a file that is gone is taken")
	}
}
