package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestTimingRules checks what the rules of time find, and what they pass.
func TestTimingRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule rule
		code string
		want int
	}{
		"a sleep":                {sleeps, `func TestA(t *testing.T) { time.Sleep(1) }`, 1},
		"a sleep in a bubble":    {sleeps, `func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, 0},
		"beside a bubble":        {sleeps, `func TestA(t *testing.T) { time.Sleep(1); synctest.Test(t, func(t *testing.T) {}) }`, 1},
		"of a helper":            {sleeps, `func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { later() }) }; func later() { time.Sleep(1) }`, 0},
		"of a helper of both":    {sleeps, `func TestA(t *testing.T) { later(); synctest.Test(t, func(t *testing.T) { later() }) }; func later() { time.Sleep(1) }`, 1},
		"of a method":            {sleeps, `func TestA(t *testing.T) { run(t, func(b *bench) { b.later() }) }; func (b *bench) later() { time.Sleep(1) }` + wrapper, 0},
		"of a method outside":    {sleeps, `func TestA(t *testing.T) { new(bench).later() }; func (b *bench) later() { time.Sleep(1) }` + wrapper, 1},
		"in a table":             {sleeps, `func TestA(t *testing.T) { for _, f := range []func(){func() { time.Sleep(1) }} { synctest.Test(t, func(t *testing.T) { f() }) } }`, 0},
		"a bound":                {races, `func TestA(t *testing.T) { if time.Since(begun) > time.Second { t.Error("slow") } }`, 1},
		"a variable":             {races, `func TestA(t *testing.T) { took := time.Since(begun); if ok && took > time.Second { t.Error("slow") } }`, 1},
		"of an if":               {races, `func TestA(t *testing.T) { if took := time.Since(begun); time.Second < took { t.Error("slow") } }`, 1},
		"a difference":           {races, `func TestA(t *testing.T) { a := time.Now(); b := time.Now(); if b.Sub(a) > time.Second { t.Fatal("slow") } }`, 1},
		"at least":               {races, `func TestA(t *testing.T) { if time.Since(begun) < time.Second { t.Error("fast") } }`, 0},
		"a maximum":              {races, `func TestA(t *testing.T) { if took := time.Since(begun); took > most { most = took } }`, 0},
		"with a flag":            {races, `var most = flag.Duration("most", 0, ""); func TestA(t *testing.T) { if took := time.Since(begun); *most > 0 && took > *most { t.Error("slow") } }`, 0},
		"in a bubble":            {races, `func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { if time.Since(begun) > 0 { t.Error("slow") } }) }`, 0},
		"a context":              {impatient, `func TestA(t *testing.T) { ctx, cancel := context.WithTimeout(ctx, 30*time.Second) }`, 1},
		"minutes":                {impatient, `func TestA(t *testing.T) { ctx, cancel := context.WithTimeout(ctx, 3*time.Minute) }`, 0},
		"a constant":             {impatient, `const patience = time.Minute / 2; func TestA(t *testing.T) { conn.SetDeadline(time.Now().Add(patience)) }`, 1},
		"a timer":                {impatient, `func TestA(t *testing.T) { late := time.NewTimer(time.Second); select { case <-late.C: t.Fatal("late") } }`, 1},
		"a pause":                {impatient, `func TestA(t *testing.T) { select { case <-time.After(time.Second): case <-done: } }`, 0},
		"a deadline":             {impatient, `func TestA(t *testing.T) { late := time.Now().Add(time.Second); for !time.Now().After(late) {} }`, 1},
		"a poll":                 {impatient, `func TestA(t *testing.T) { err := wait.PollUntilContextTimeout(ctx, time.Second, 2*time.Second, true, f) }`, 1},
		"of a parameter":         {impatient, `func await(d time.Duration) { ctx, cancel := context.WithTimeout(ctx, d) }`, 0},
		"a local constant":       {impatient, `func TestA(t *testing.T) { const limit = 2 * time.Second; ctx, cancel := context.WithTimeout(ctx, limit) }`, 1},
		"a time of certificates": {impatient, `func TestA(t *testing.T) { c.NotAfter = time.Now().Add(time.Second) }`, 0},
	} {
		tokens := token.NewFileSet()
		f, err := parser.ParseFile(tokens, "a_test.go", "package a\nimport \"testing/synctest\"\n"+c.code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(name, err)
		}
		if found := c.rule.in([]testFile{{"a_test.go", tokens, f}}, newDurations([]*ast.File{f})); len(found) != c.want {
			t.Errorf("%s: %v, want %d", name, found, c.want)
		}
	}
}

// wrapper is a function that runs another in a bubble.
const wrapper = `; func run(t *testing.T, f func(*bench)) { synctest.Test(t, func(t *testing.T) { f(&bench{}) }) }`
