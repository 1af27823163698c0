// Package config reads usher.toml: it turns the file into plain values with
// every default filled in, or into the list of everything that is wrong with it.
//
// Guarantees:
//   - Parsing is strict. An unknown key, a wrong type or a value outside its
//     range is an error, never ignored and never silently corrected.
//   - The error of Load and Parse is a Problems value that holds every problem
//     found, in the order of the file, each with file, line and column (both
//     counted from 1, columns in characters) and a message that says what to do.
//     Only a file that is no TOML at all stops at its first problem.
//   - A File is complete: no field needs a default of the reader, paths are
//     absolute (relative ones are relative to the file's directory), hosts are
//     in lower case, accounts are resolved to numbers.
//   - Nothing is started, created or changed; the file system is only asked
//     whether named files exist and may run.
//   - No globals: all that depends on the machine comes in through Env.
//
// A caller may not assume that a file that was valid stays so: artifacts can
// disappear and accounts can be removed between validation and use.
package config
