fn main(){ let mut p=tree_sitter::Parser::new(); p.set_language(&tree_sitter_bash::LANGUAGE.into()).unwrap();
 for l in std::io::stdin().lines(){ let l=l.unwrap().replace("\\n","\n"); let t=p.parse(&l,None).unwrap(); println!("{l:?}\n   {}",t.root_node().to_sexp()); } }
