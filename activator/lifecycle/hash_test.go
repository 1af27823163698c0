package lifecycle

import (
	"hash/maphash"
	"reflect"
	"testing"
	"unsafe"
)

// Two worlds are one for the exploration if their hashes are equal. What is left
// out of the hash is not explored, so everything but what is named here is in it.
func TestAWorldThatDiffersInAnythingIsAnotherOne(t *testing.T) {
	leftOut := map[string]bool{
		"d.rels[0]": true, "d.since[0]": true, // there is no revision 0
		"late.res": true, "late.why": true, // how a late answer ended is chosen when it arrives
	}
	w := world{ng: maxGens, nl: maxLocal}
	seed := maphash.MakeSeed()
	was := w.hash(seed)
	n := 0
	eachField(reflect.ValueOf(&w).Elem(), "", func(path string, v reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch {
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.Uint() > 0: // how many there are
			v.SetUint(v.Uint() - 1)
		default:
			v.SetUint(1)
		}
		n++
		if same := w.hash(seed) == was; same != leftOut[path] {
			t.Errorf("%s changes, and the hash stays the same: %v", path, same)
		}
		v.Set(old)
	})
	t.Logf("%d fields", n)
}

// eachField calls f with every number and flag in v.
func eachField(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if path != "" {
				name = path + "." + name
			}
			eachField(v.Field(i), name, f)
		}
	case reflect.Array:
		for i := range v.Len() {
			eachField(v.Index(i), path+"["+string(rune('0'+i))+"]", f)
		}
	default:
		f(path, reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem())
	}
}
