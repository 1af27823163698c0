package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BootID returns the id of this boot of the machine.
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// FileRuns is Runs on a directory: <generation>.json for each record.
type FileRuns struct {
	dir    string
	bootID string
}

var _ Runs = (*FileRuns)(nil)

const (
	runExt    = ".json"
	runTemp   = ".put-" // a record being written; complete when renamed
	runMode   = 0o700
	runBroken = ".unreadable-"
)

// OpenRuns opens the run directory dir, which it makes if needed (mode 0700),
// and removes what an interrupted Put has left: nobody was told that it had
// succeeded. bootID is what BootID returned.
func OpenRuns(dir, bootID string) (*FileRuns, error) {
	if bootID == "" {
		return nil, fmt.Errorf("open run directory %s: no boot id", dir)
	}
	if err := os.MkdirAll(dir, runMode); err != nil {
		return nil, fmt.Errorf("make run directory: %w", explain(err))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open run directory: %w", explain(err))
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), runTemp) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return nil, fmt.Errorf("clean run directory: %w", explain(err))
		}
	}
	return &FileRuns{dir: dir, bootID: bootID}, nil
}

func (r *FileRuns) path(generation uint64) string {
	return filepath.Join(r.dir, strconv.FormatUint(generation, 10)+runExt)
}

// Put implements Runs.
func (r *FileRuns) Put(run Run) error {
	data, err := encodeRun(run, r.bootID)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(r.dir, runTemp+"*")
	if err != nil {
		return fmt.Errorf("write run record %d: %w", run.Generation, explain(err))
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), r.path(run.Generation))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write run record %d: %w", run.Generation, explain(err)), os.Remove(f.Name()))
	}
	return nil
}

// Delete implements Runs.
func (r *FileRuns) Delete(generation uint64) error {
	if err := os.Remove(r.path(generation)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete run record %d: %w", generation, explain(err))
	}
	return nil
}

// List implements Runs.
func (r *FileRuns) List() (runs []Run, notes []error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		notes = append(notes, fmt.Errorf("list run records: %w", explain(err)))
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), runExt)
		generation, err := strconv.ParseUint(name, 10, 64)
		if !ok || err != nil {
			continue // set aside, or not ours
		}
		run, note := r.load(generation)
		if note != nil {
			notes = append(notes, note)
		} else if run != nil {
			runs = append(runs, *run)
		}
	}
	slices.SortFunc(runs, byGeneration)
	return runs, notes
}

// load reads one record; nil and no note if it has been deleted meanwhile.
func (r *FileRuns) load(generation uint64) (*Run, error) {
	path := r.path(generation)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var run Run
	if err == nil {
		run, err = decodeRun(data, generation)
	}
	if err != nil {
		aside := path + runBroken + strconv.FormatInt(time.Now().UnixNano(), 10)
		note := fmt.Errorf("run record %s is unreadable, set aside as %s: %w", path, aside, err)
		return nil, errors.Join(note, os.Rename(path, aside))
	}
	if run.BootID != r.bootID {
		return nil, errors.Join(otherBoot(run), os.Remove(path))
	}
	return &run, nil
}

func byGeneration(a, b Run) int {
	if a.Generation < b.Generation {
		return -1
	}
	if a.Generation > b.Generation {
		return 1
	}
	return 0
}

func otherBoot(run Run) error {
	return fmt.Errorf("run record of app %s generation %d is from before the machine restarted: discarded", run.App, run.Generation)
}

func encodeRun(run Run, bootID string) ([]byte, error) {
	if run.Generation == 0 || run.App == "" || run.Phase == "" {
		return nil, fmt.Errorf("write run record: generation %d, app %q and phase %q must all be set: %w",
			run.Generation, run.App, run.Phase, ErrInvalid)
	}
	run.BootID = bootID
	data, err := json.Marshal(run)
	if err != nil {
		return nil, fmt.Errorf("encode run record %d: %w", run.Generation, err)
	}
	return append(data, '\n'), nil
}

func decodeRun(data []byte, generation uint64) (Run, error) {
	var run Run
	if err := json.Unmarshal(data, &run); err != nil {
		return Run{}, err
	}
	if run.Generation != generation || run.App == "" || run.Phase == "" {
		return Run{}, fmt.Errorf("it says generation %d, app %q, phase %q", run.Generation, run.App, run.Phase)
	}
	return run, nil
}
