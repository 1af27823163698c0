package config

import (
	"slices"
	"strings"
)

// suggest says what to do about an unknown word: the nearest known one, if one
// is near enough to be meant, else all of them.
func suggest(word string, known []string) string {
	best, bestCost := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if c := editCost(normal(word), normal(k)); c < bestCost {
			best, bestCost = k, c
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	all := slices.Clone(known)
	slices.Sort(all)
	return "known here: " + strings.Join(slices.Compact(all), ", ")
}

// normal takes out what people mix up without meaning another key.
func normal(key string) string {
	return strings.ReplaceAll(strings.ToLower(key), "-", "_")
}

// editCost is the Levenshtein distance in bytes, where swapping two
// neighbours counts once (optimal string alignment).
func editCost(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, prev[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
