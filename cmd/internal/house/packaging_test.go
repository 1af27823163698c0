package house

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unitProblems finds what would make a unit file lose apps, by the lines that
// must be there and those that must not.
func unitProblems(text string) []finding {
	must := map[string]string{
		"Type=exec":                    "a usher that cannot be started must fail the start",
		"KillMode=process":             "or a restart of usher kills the apps",
		"Delegate=yes":                 "or systemd and usher fight over the apps' cgroups",
		"OOMPolicy=continue":           "or one app out of memory stops usher",
		"RuntimeDirectoryPreserve=yes": "or a restart loses the records by which running apps are found",
		"StateDirectoryMode=0711":      "or apps of other users cannot reach their builds, or can list those of others",
	}
	mustNot := map[string]string{
		"ProtectControlGroups":    "usher could make no cgroup",
		"PrivateTmp":              "apps that live over a restart would see another /tmp than usher",
		"MemoryDenyWriteExecute":  "apps with a JIT would crash, as they inherit it",
		"SystemCallFilter":        "apps inherit it, and nobody knows their calls",
		"DynamicUser":             "usher must become the users of the apps",
		"PrivateUsers":            "usher must become the users of the apps",
		"SendSIGKILL":             "usher may have hung",
		"RestrictAddressFamilies": "apps inherit it, and nobody knows what they speak",
	}
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	var found []finding
	for line, why := range must {
		if !slices.Contains(lines, line) {
			found = append(found, finding{"usher.service", 0, line + " is missing, " + why})
		}
	}
	for i, line := range lines {
		key, _, _ := strings.Cut(line, "=")
		if why := mustNot[key]; why != "" {
			found = append(found, finding{"usher.service", i + 1, key + " must not be there: " + why})
		}
	}
	return found
}

func TestTheUnitKeepsAppsAlive(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "packaging", "usher.service"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, unitProblems(string(text)))
}

func TestAUnitThatLosesAppsIsFound(t *testing.T) {
	want(t, unitProblems("[Service]\nType=exec\n# KillMode=process\nKillMode=mixed\nOOMPolicy=continue\nRuntimeDirectoryPreserve=yes\nStateDirectoryMode=0711\nPrivateTmp=no\n"),
		"Delegate=yes is missing", "KillMode=process is missing", "usher.service:8: PrivateTmp must not be there")
}
