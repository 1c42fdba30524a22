package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

//go:embed patches
var patches embed.FS

// mutant is the code with an error.
type mutant struct {
	name    string
	changes []change
}

// change is the part of a patch for one file.
type change struct {
	file  string // below the root of the module, with slashes
	hunks []hunk
}

// hunk replaces whole lines by others.
type hunk struct{ before, after string }

// mutants returns the mutants of all patches, by name.
func mutants() ([]mutant, error) {
	entries, err := patches.ReadDir("patches")
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, e := range entries {
		text, err := patches.ReadFile("patches/" + e.Name())
		if err != nil {
			return nil, err
		}
		changes, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		all = append(all, mutant{strings.TrimSuffix(e.Name(), ".patch"), changes})
	}
	return all, nil
}

// parse reads a unified diff of existing files. It ignores what stands before the first
// file, and line numbers: a hunk belongs where its lines are.
func parse(text string) (changes []change, err error) {
	inHunk := false
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "--- a/"); ok {
			changes, inHunk = append(changes, change{file: strings.TrimSpace(name)}), false
			continue
		}
		if len(changes) == 0 {
			continue
		}
		last := &changes[len(changes)-1]
		if strings.HasPrefix(line, "@@ ") {
			last.hunks, inHunk = append(last.hunks, hunk{}), true
			continue
		}
		if !inHunk {
			continue
		}
		h := &last.hunks[len(last.hunks)-1]
		switch content := line[1:]; line[0] {
		case ' ':
			h.before += content
			h.after += content
		case '-':
			h.before += content
		case '+':
			h.after += content
		case '\n': // an editor has removed the space
			h.before += line
			h.after += line
		default:
			inHunk = false
		}
	}
	for _, c := range changes {
		if len(c.hunks) == 0 {
			return nil, fmt.Errorf("no hunk of %s", c.file)
		}
	}
	if len(changes) == 0 {
		return nil, errors.New("no changes")
	}
	return changes, nil
}

// apply returns the changed content of the file.
func (c change) apply(content string) (string, error) {
	content = "\n" + content // so that each line has one before it
	for _, h := range c.hunks {
		before := "\n" + h.before
		switch at := strings.Index(content, before); {
		case at < 0:
			return "", fmt.Errorf("%s does not have these lines:%s", c.file, before)
		case at != strings.LastIndex(content, before):
			return "", fmt.Errorf("%s has these lines more than once:%s", c.file, before)
		}
		content = strings.Replace(content, before, "\n"+h.after, 1)
	}
	return content[1:], nil
}

// changedFiles returns the content of the files that differ from those in root, by path.
func (m mutant) changedFiles(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, c := range m.changes {
		file := filepath.Join(root, filepath.FromSlash(c.file))
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("patch %s: %w", m.name, err)
		}
		if changed[file], err = c.apply(string(content)); err != nil {
			return nil, fmt.Errorf("patch %s: %w", m.name, err)
		}
	}
	return changed, nil
}

// packages returns the packages that differ, as arguments of the go command in the root of the
// module. A package may be there more than once.
func (m mutant) packages() (all []string) {
	for _, c := range m.changes {
		all = append(all, "./"+path.Dir(c.file))
	}
	return all
}

// writeOverlay writes files into a new directory. It returns the path of the description
// of these files that the go command takes as -overlay.
func writeOverlay(dir string, files map[string]string) (string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, content := range files {
		copied := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(copied, []byte(content), 0o600); err != nil {
			return "", err
		}
		replace[file] = copied
	}
	description, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, description, 0o600)
}
