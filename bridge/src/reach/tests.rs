use super::*;
use crate::translation::{CallPlace, translate};
use serde_json::json;

struct LinkFixture {
    /// Removed when dropped.
    _root: tempfile::TempDir,
    workspace: PathBuf,
}

impl LinkFixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let workspace = base.join("w");
        for directory in ["w/src", "home/.claude", "other"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        std::fs::write(base.join("home/.claude/settings.json"), "{}").unwrap();
        std::fs::write(workspace.join("src/a.txt"), "a").unwrap();
        let link = |to: PathBuf, name: &str| {
            std::os::unix::fs::symlink(to, workspace.join(name)).unwrap();
        };
        link(base.join("home/.claude/settings.json"), "cfg");
        link(base.join("home/.claude"), "cdir");
        link(base.join("home/.claude/settings.local.json"), "later");
        link(base.join("other"), "away");
        link("src/a.txt".into(), "near");
        link("src".into(), "srclink");
        std::fs::create_dir_all(workspace.join("src/in")).unwrap();
        link("src/in".into(), "inner");
        link(base.join("home/.claude/settings.json"), "read me.txt");
        std::fs::create_dir_all(workspace.join("sub")).unwrap();
        link(base.join("other"), "sub/away");
        Self {
            _root: root,
            workspace,
        }
    }

    fn check(&self, tool: &str, input: Value) -> CallReach {
        self.check_in(&self.workspace, tool, input)
    }

    fn check_in(&self, cwd: &Path, tool: &str, input: Value) -> CallReach {
        let place = CallPlace {
            workspace: self.workspace.clone(),
            cwd: cwd.to_owned(),
        };
        let call = translate(tool, input.as_object().unwrap(), &place);
        check(&call, &self.workspace)
    }

    fn line(&self, line: &str) -> CallReach {
        self.check("Bash", json!({ "command": line }))
    }
}

#[test]
fn a_guarded_file_has_no_other_name() {
    let fixture = LinkFixture::new();
    for line in [
        "echo x > cdir/settings.json",
        "cp a cfg",
        "tee ./src/../cdir/settings.json",
        "echo x >later",
        "cat \"cdir/settings.json\"",
        "dd of=cfg",
        "cat cdir/*.json cdir/settings.json",
    ] {
        assert!(
            matches!(fixture.line(line), CallReach::Refused(_)),
            "{line}"
        );
    }
    for (tool, input) in [
        ("Write", json!({ "file_path": "cfg", "content": "" })),
        (
            "Edit",
            json!({ "file_path": "cdir/settings.json", "old_string": "a", "new_string": "b" }),
        ),
        (
            "Read",
            json!({ "file_path": fixture.workspace.join("cfg") }),
        ),
        (
            "mcp__files__write",
            json!({ "where": { "to": ["cdir/settings.json"] } }),
        ),
        (
            "apply_patch",
            json!({ "patch": "*** Begin Patch\n*** Add File: new\n+x\n*** Update File: cfg\n@@\n-a\n+b\n*** End Patch" }),
        ),
        (
            "apply_patch",
            json!({ "patchText": "*** Begin Patch\n*** Update File: src/a.txt\n*** Move to: cdir/settings.local.json\n*** End Patch" }),
        ),
    ] {
        assert!(
            matches!(fixture.check(tool, input), CallReach::Refused(_)),
            "{tool}"
        );
    }
}

#[test]
fn a_link_out_of_the_workspace_is_asked_about_and_one_inside_is_not() {
    let fixture = LinkFixture::new();
    for line in [
        "cat away/x",
        "ls away",
        "cat away/*",
        "cat away/../x",
        "cat src/../away/none/../y",
    ] {
        assert_eq!(fixture.line(line), CallReach::Ask, "{line}");
    }
    for line in ["cat near", "cat src/a.txt", "ls", "pwd", "ls src | head -3"] {
        assert_eq!(fixture.line(line), CallReach::AsShown, "{line}");
    }
    let near = json!({ "file_path": fixture.workspace.join("near") });
    assert_eq!(fixture.check("Read", near), CallReach::AsShown);
}

#[test]
fn a_client_that_went_elsewhere_reads_there() {
    let fixture = LinkFixture::new();
    let sub = fixture.workspace.join("sub");
    let outside = fixture.workspace.join("../other").canonicalize().unwrap();
    std::fs::create_dir_all(sub.join("src")).unwrap();
    // Seen from the workspace, `away` and `src` are something else.
    std::fs::remove_file(fixture.workspace.join("away")).unwrap();
    std::fs::create_dir(fixture.workspace.join("away")).unwrap();
    for (tool, input) in [
        ("Grep", json!({ "pattern": "x", "path": "away" })),
        ("Grep", json!({ "pattern": "x" })),
        ("Glob", json!({ "pattern": "away/*" })),
        ("LS", json!({ "path": "away" })),
    ] {
        let reach = fixture.check_in(&sub, tool, input.clone());
        assert_eq!(reach, CallReach::Ask, "{tool} {input}");
    }
    let near = json!({ "pattern": "x", "path": "src" });
    assert_eq!(fixture.check_in(&sub, "Grep", near), CallReach::AsShown);
    // White space stays where the policy looks for it.
    for (path, shown) in [("\t away", "\t /"), (" ", "/"), ("away ", "/")] {
        let place = CallPlace {
            workspace: fixture.workspace.clone(),
            cwd: sub.clone(),
        };
        let input = json!({ "pattern": "x", "path": path });
        let call = translate("Grep", input.as_object().unwrap(), &place);
        let whole = call.arguments["path"].as_str().unwrap();
        let found = POLICY.explain(
            &Action::from_tool_call("Grep", &call.arguments),
            &shown_workspace(&fixture.workspace),
        );
        assert!(whole.starts_with(shown), "{whole:?}");
        assert_eq!(found.assessment.rule, "path.outside", "{whole:?}");
    }
    let anywhere = json!({ "pattern": "x" });
    assert_eq!(fixture.check_in(&outside, "Grep", anywhere), CallReach::Ask);
    // A pattern starts where the search does.
    let below = json!({ "path": "sub", "pattern": "away/*" });
    assert_eq!(fixture.check("Glob", below), CallReach::Ask);
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-a\n+b\n*** End Patch";
    let refused = fixture.check_in(&sub, "apply_patch", json!({ "input": patch }));
    assert!(
        matches!(&refused, CallReach::Refused(why) if why.contains("`a.txt` from")),
        "{refused:?}"
    );
    let whole = format!("{}/a.txt", sub.display());
    let whole = patch.replace("a.txt", &whole);
    let asked = fixture.check_in(&sub, "apply_patch", json!({ "input": whole }));
    assert!(!matches!(asked, CallReach::Refused(_)), "{asked:?}");
}

#[test]
fn what_a_repository_can_configure_is_no_plain_read() {
    let fixture = LinkFixture::new();
    for line in [
        "git status",
        "git -C vendor/x status",
        "cargo --version",
        "docker ps",
        "cat src/*",
    ] {
        assert_eq!(fixture.line(line), CallReach::Ask, "{line}");
    }
}

/// A name in every form of quoting that a shell knows, and with patterns that match it.
fn quoted_forms(name: &str) -> Vec<String> {
    let escaped = |text: &str| text.replace(' ', "\\ ");
    let mut forms = vec![
        format!("'{name}'"),
        format!("\"{name}\""),
        format!("$'{name}'"),
    ];
    forms.push(format!("$\"{name}\""));
    let octal: String = name.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    forms.push(format!("$'{octal}'"));
    let slashed: String = name.chars().map(|c| format!("\\{c}")).collect();
    forms.push(slashed);
    for at in 1..name.len() {
        let (before, after) = name.split_at(at);
        let (plain, rest) = (escaped(before), escaped(after));
        forms.push(format!("{plain}'{after}'"));
        forms.push(format!("'{before}'\"{after}\""));
        forms.push(format!("{plain}\"\"{rest}"));
        forms.push(format!("{plain}''{rest}"));
        forms.push(format!("{plain}$'{after}'"));
        forms.push(format!("{plain}$\"{after}\""));
        forms.push(format!("{plain}\\\n{rest}"));
        if !name.contains(' ') {
            forms.push(format!("{before}{{{after},}}"));
            forms.push(format!("{{{before},x}}{after}"));
            let (one, others) = after.split_at(1);
            forms.push(format!("{before}{{{one}..{one}}}{others}"));
            // No pattern matches a slash.
            if one != "/" {
                forms.push(format!("{before}[{one}]{others}"));
                forms.push(format!("{before}?{others}"));
            }
            if !after.contains('/') {
                forms.push(format!("{before}*"));
            }
        }
    }
    forms
}

fn severity(reach: &CallReach) -> u8 {
    match reach {
        CallReach::AsShown => 0,
        CallReach::Ask => 1,
        CallReach::Refused(_) => 2,
    }
}

#[test]
fn no_quoting_hides_a_link() {
    let fixture = LinkFixture::new();
    let mut tried = 0;
    for name in ["cfg", "later", "away", "read me.txt", "cdir/settings.json"] {
        for command in [
            "cat @",
            "cat < @",
            "cat <@",
            "echo x > @",
            "echo x >>@",
            "echo x &> @",
            "cat <<E > @\nx\nE\n",
            "cp src/a.txt @",
            "dd of=@",
            "sort -o@ src/a.txt",
            "X=@ make",
            "x=@; cat $x",
            "cd sub/.. && cat @",
            "(cd src; cat ../@)",
            "for f in @; do cat \"$f\"; done",
            "sudo tee @",
            "echo $(cat @)",
            "true && { cat @; }",
            "cat ./@",
        ] {
            let plain = command.replace('@', &name.replace(' ', "\\ "));
            let plain_reach = severity(&fixture.line(&plain));
            assert!(plain_reach > 0, "{plain}");
            for form in quoted_forms(name) {
                let line = command.replace('@', &form);
                let found = severity(&fixture.line(&line));
                assert!(found >= plain_reach, "{line:?}: {found} of {plain_reach}");
                tried += 1;
            }
        }
    }
    assert!(tried > 5000, "{tried}");
}

#[test]
fn a_link_with_characters_of_the_shell_in_its_name_is_found() {
    let fixture = LinkFixture::new();
    let target = fixture.workspace.join("cfg").canonicalize().unwrap();
    for name in ["a$b", "a*b", "[x]", "~", "a{b,c}", "a b=c", "-x"] {
        std::os::unix::fs::symlink(&target, fixture.workspace.join(name)).unwrap();
        for line in ["cat '@'", "cat ./'@'", "echo x > '@'"] {
            let line = line.replace('@', name);
            let reach = fixture.line(&line);
            assert!(matches!(reach, CallReach::Refused(_)), "{line}: {reach:?}");
        }
    }
}

#[test]
fn what_is_found_beyond_the_raw_line_is_no_new_question() {
    let fixture = LinkFixture::new();
    for line in [
        "cat 'src/a.txt'",
        "cat s'rc'/a.txt",
        "cat \"near\"",
        "grep -n 'a b: c, d=e' src/a.txt",
        "echo 'it is {so}' | head -1",
        "cat < src/a.txt",
        "cat srclink/a.txt",
    ] {
        assert_eq!(fixture.line(line), CallReach::AsShown, "{line}");
    }
    // A step up from behind a link is one from where the link leads.
    assert_eq!(fixture.line("cat inner/../a.txt"), CallReach::Ask);
}

#[test]
fn a_search_through_a_directory_is_asked_about_if_it_may_find_a_secret() {
    let fixture = LinkFixture::new();
    let here = |line: &str| line.replace('@', "src");
    let searches = ["grep -r a @", "grep -rn a -- @", "grep -ri -e a @"];
    for line in searches {
        assert_eq!(fixture.line(&here(line)), CallReach::AsShown, "{line}");
        // Links that lead out of it are in the workspace.
        assert_eq!(fixture.line(&line.replace('@', ".")), CallReach::Ask);
    }
    for line in [
        "grep -R a src",
        "diff -r src sub",
        "diff src sub",
        "ls -L src",
    ] {
        assert_eq!(fixture.line(line), CallReach::Ask, "{line}");
    }
    let grep = |path: &str| fixture.check("Grep", json!({ "pattern": "a", "path": path }));
    assert_eq!(grep("src"), CallReach::AsShown);
    assert_eq!(grep("src/a.txt"), CallReach::AsShown);
    assert_eq!(grep("sub"), CallReach::Ask);
    assert_eq!(
        fixture.check("Grep", json!({ "pattern": "a" })),
        CallReach::Ask
    );
    for secret in ["src/deep/.env", "src/key.pem", "src/.git/config"] {
        let path = fixture.workspace.join(secret);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "x").unwrap();
        for line in searches {
            assert_eq!(fixture.line(&here(line)), CallReach::Ask, "{secret} {line}");
        }
        // Claude Code's own search leaves git's files out.
        let expected = match secret.contains(".git/") {
            true => CallReach::AsShown,
            false => CallReach::Ask,
        };
        assert_eq!(grep("src"), expected, "{secret}");
        // Names are no content.
        for line in ["find src -name x", "ls -R src", "du -s src"] {
            assert_eq!(fixture.line(line), CallReach::AsShown, "{line}");
        }
        std::fs::remove_file(&path).unwrap();
        if secret != "src/key.pem" {
            std::fs::remove_dir(path.parent().unwrap()).unwrap();
        }
    }
    for line in searches {
        assert_eq!(fixture.line(&here(line)), CallReach::AsShown, "{line}");
    }
}
