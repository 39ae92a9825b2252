// Package invariants tests the invariants of worker sessions in random schedules: one owner at a time, rising epochs,
// no work under a dropped epoch, no delay of other work.
package invariants
