//! Expressions for find, with tests that have their values and actions that write.

use crate::generator::random::Random;

/// Tests and actions with their values, of which some are flags of their own.
const PREDICATES: &str = r##"
    -name␣'*.txt' -name␣a.txt -name␣-delete -type␣f -type␣d -maxdepth␣1 -mindepth␣1 -print -print0
    -ls -empty -newer␣a.txt -size␣+0 -mtime␣-1 -path␣'./src/*' -regex␣'.*' -prune -quit -true -false
    -perm␣-u+r -perm␣/111 -user␣nobody -samefile␣a.txt -printf␣'%p\n' -printf␣-delete -not ! -o -or
    -a -and , \(␣-true␣\) -follow -depth -daystart -xdev -mount -noleaf -iname␣A* -links␣1 -readable
    -delete -fprint␣x -fprint0␣x -fls␣x -fprintf␣x␣y -exec␣touch␣x␣\; -exec␣touch␣x␣{}␣+ -ok␣id␣\;
    -execdir␣touch␣x␣\; -okdir␣id␣\; -files0-from␣a.txt -newermt␣-delete -newerXY␣a -anewer␣a.txt
    -name␣x␣-delete -name␣"-delete" '-delete' -del\ete "-de"lete -fprint -type -name
"##;

const STARTS: &str = r##"∅ . src ./src a.txt . src␣. -L␣. -P␣. -H␣. -O3␣. -D␣tree␣. -- --␣. './-delete' *.txt src/* -delete "##;

pub(super) fn expression(random: &mut Random) -> String {
    let mut words = vec![random.piece(STARTS)];
    for _ in 0..random.below(5) {
        words.push(random.piece(PREDICATES));
    }
    words.join(" ")
}
